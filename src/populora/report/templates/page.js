"use strict";
// The page's only script: colours, picking out a member, CSV files, the explorer, and following a run.
// What a model wrote is set as text, never as markup.
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const unpack = (name) => {
    const bytes = Uint8Array.from(atob(document.getElementById(`blob-${name}`).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  };
  const kept = { // a page from the disk may not be allowed to keep anything: then it is forgotten
    get: (name) => { try { return localStorage.getItem(name); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem(name, value); } catch { return; } },
  };

  // Colours: as the system has them, light, dark.
  const THEMES = { auto: "◐ auto", light: "○ light", dark: "● dark" };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = THEMES[kept.get("populora-theme")] ? kept.get("populora-theme") : "auto";
  const paint = () => {
    document.documentElement.dataset.shade = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
    $("#theme").textContent = THEMES[theme];
    $("#theme").setAttribute("aria-label", `Colours: ${theme === "auto" ? "as the system has them" : theme}`);
  };
  dark.addEventListener("change", paint);
  paint();
  $("#theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    kept.set("populora-theme", theme);
    paint();
  });
  if (matchMedia("(max-width: 860px)").matches) $("#contents").open = false;

  // One member in every figure.
  let picked = null;
  const pick = () => {
    for (const one of all("[data-member]")) one.setAttribute("aria-pressed", String(one.dataset.member === picked));
    for (const mark of all("[data-mark]")) mark.classList.toggle("chosen", mark.dataset.mark === picked);
    document.body.classList.toggle("picked", picked !== null);
  };

  // Buttons of figures, which a followed run replaces: so the document listens.
  document.addEventListener("click", async ({ target }) => {
    const member = target.closest("[data-member]"), csv = target.closest("[data-csv]");
    if (member) {
      picked = picked === member.dataset.member ? null : member.dataset.member;
      pick();
    }
    if (csv) {
      const href = URL.createObjectURL(await unpack(`csv-${csv.dataset.csv}`).blob());
      make("a", { href, download: `${csv.dataset.csv}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(href), 1000);
    }
  });

  // The explorer.
  const PAGE = 200, form = $("#filters"), list = $("#list");
  const ASKED = { code_i: "input", code_o: "output", code_f: "function" };
  let runs = [], found = [], limit = PAGE;
  const answerOf = (answer) => (answer.void ? "void" : answer.correct ? "correct" : answer.reason || "wrong");
  const current = () => runs[Number(form.run.value)] ?? { entries: [] };
  const address = (run, entry) => `#p=${encodeURIComponent(run.run)}/${encodeURIComponent(entry.id)}`;
  const named = () => location.hash.match(/^#p=([^/]*)\/(.*)$/)?.slice(1).map(decodeURIComponent) ?? [];
  const number = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
  const count = (value, one) => `${value.toLocaleString("en")} ${one}${value === 1 ? "" : "s"}`;
  const distinct = (values) => [...new Set(values)].sort((a, b) => String(a).localeCompare(String(b), "en", { numeric: true }));
  const options = (select, values) => {
    const before = select.value, given = distinct(values).map(String);
    select.replaceChildren(make("option", { value: "", textContent: "all" }), ...given.map((value) => make("option", { value, textContent: value })));
    select.value = given.includes(before) ? before : "";
  };
  const refill = () => {
    const { entries } = current(), answers = entries.flatMap((entry) => entry.answers ?? []);
    for (const name of ["step", "author", "task", "verdict"]) options(form[name], entries.map((entry) => entry[name]));
    options(form.student, answers.map((answer) => answer.student));
    options(form.answer, answers.map(answerOf));
  };
  const fits = (entry) => {
    for (const name of ["step", "author", "task", "verdict"]) if (form[name].value && String(entry[name]) !== form[name].value) return false;
    const answers = entry.answers ?? [], student = form.student.value, answer = form.answer.value;
    if ((student || answer) && !answers.some((one) => (!student || one.student === student) && (!answer || answerOf(one) === answer))) return false;
    const wanted = form.text.value.trim().toLowerCase();
    return !wanted || [entry.program ?? "", entry.text, ...answers.map((one) => one.text)].some((one) => one.toLowerCase().includes(wanted));
  };
  const draw = () => {
    const run = current(), [, open] = named();
    found = run.entries.filter(fits);
    list.replaceChildren(...found.slice(0, limit).map((entry) => {
      const rho = entry.rho === null || entry.rho === undefined ? "" : ` (${number(entry.rho)})`;
      const link = make("a", { href: address(run, entry) }, `step ${entry.step} · ${entry.author} · ${entry.task}`, make("small", { textContent: entry.verdict + rho }));
      if (entry.id === open) link.setAttribute("aria-current", "true");
      return make("li", {}, link);
    }));
    if (found.length > limit) list.append(make("li", {}, make("button", { type: "button", textContent: `${found.length - limit} more`, onclick: () => { limit += PAGE; draw(); } })));
    $("#found").textContent = `${count(found.length, "proposal")} of the ${run.entries.length.toLocaleString("en")} in this page`;
  };
  const block = (title, text) => [make("h4", { textContent: title }), make("pre", { textContent: text })];
  const problem = (entry) => {
    const pairs = (side, note) => entry[side].map(([inputs, output]) => `f(${inputs}) → ${output}${note}`);
    const measures = [`AST depth ${entry.ast_depth}`, `cyclomatic ${entry.cyclomatic}`, count(entry.loc, "line"), count(entry.variables, "variable"), `rho ${number(entry.rho)}`];
    return [
      make("pre", { textContent: entry.program }),
      make("p", { className: "measures", textContent: measures.join(" · ") }),
      ...block("Inputs and outputs", [...pairs("shown", ""), ...pairs("hidden", "   (hidden from the student)")].join("\n")),
      ...(entry.message ? block("Message", entry.message) : []),
    ];
  };
  const reply = (answer) => {
    const sign = make("span", { className: answer.correct ? "good" : "bad", textContent: answer.void ? "?" : answer.correct ? "✓" : "✗" });
    const why = make("small", { textContent: `reward ${number(answer.reward)}${answer.trained ? "" : ", not trained on"}` });
    return [make("h4", {}, sign, ` ${answer.student}${answer.times > 1 ? ` ×${answer.times}` : ""}: ${answerOf(answer)}`, why), make("pre", { textContent: answer.text })];
  };
  const view = (run, entry) => {
    const told = (entry.answers ?? []).reduce((sum, answer) => sum + answer.times, 0);
    const rest = entry.of > told ? [make("p", { className: "measures", textContent: `${told} of ${entry.of} answers shown` })] : [];
    $("#problem").replaceChildren(
      make("h3", { textContent: `${entry.author}, step ${entry.step}: ${entry.task}, asks for the ${ASKED[entry.task]}` }),
      make("p", { className: "measures" }, `${entry.verdict} · reward of ${entry.author}: ${number(entry.reward)} · `, make("a", { href: address(run, entry), textContent: "link to this problem" })),
      ...(entry.program === undefined ? [] : problem(entry)),
      ...(entry.answers ?? []).flatMap(reply), ...rest,
      ...block(`What ${entry.author} wrote`, entry.text),
      make("p", { className: "measures" }, "Everything of this step: ", make("code", { textContent: `populora show ${run.folder} --step ${entry.step} --teacher ${entry.author}` })),
    );
  };
  const follow = () => { // the address names a problem
    const [name, id] = named();
    if (name === undefined) return false;
    const index = runs.findIndex((run) => run.run === name), entry = runs[index]?.entries.find((one) => one.id === id);
    if (!entry) {
      $("#problem").replaceChildren(make("p", { textContent: "The problem of this link is not in this page's sample: `populora show RUN --step N` has all." }));
      return true;
    }
    if (String(index) !== form.run.value) {
      form.run.value = String(index);
      refill();
    }
    view(runs[index], entry);
    draw();
    return true;
  };
  const go = (by) => {
    const [, open] = named();
    const next = found[Math.max(0, Math.min(found.length - 1, found.findIndex((entry) => entry.id === open) + by))];
    if (next) location.hash = address(current(), next);
  };
  form.addEventListener("input", ({ target }) => {
    if (target === form.run) refill();
    limit = PAGE;
    draw();
  });
  form.addEventListener("reset", () => setTimeout(() => { refill(); draw(); }));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => {
    if (!follow()) return;
    $('#list a[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
    $("#problem").focus({ preventScroll: true });
  });
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") go(1);
    if (event.key === "k") go(-1);
  });
  const explore = async () => {
    const chosen = form.run.value;
    runs = await Promise.all(all('[id^="blob-explorer-"]').map((one) => unpack(one.id.slice("blob-".length)).json()));
    form.run.replaceChildren(...runs.map((run, index) => make("option", { value: String(index), textContent: run.run })));
    if (chosen) form.run.value = chosen;
    refill();
    draw();
  };
  explore().then(() => {
    if (follow()) $("#explorer").scrollIntoView();
    document.documentElement.dataset.ready = "true";
  });

  // A page that follows a run takes over what is new, without losing where the reader is.
  const renew = async () => {
    const now = await (await fetch("version", { cache: "no-store" })).json();
    $("#live").textContent = now.text;
    if (now.version === document.body.dataset.version) return;
    const next = new DOMParser().parseFromString(await (await fetch("./", { cache: "no-store" })).text(), "text/html");
    document.body.dataset.version = next.body.dataset.version;
    for (const part of [".lead", "#runs", "#sampled", "#blobs", "footer"]) $(part).replaceWith($(part, next));
    for (const figure of all("figure", next)) document.getElementById(figure.id)?.replaceWith(figure);
    pick();
    await explore();
  };
  if (document.body.dataset.version) {
    setInterval(() => renew().catch(() => { $("#live").textContent = "the server has ended: this is the page as it was last"; }), 2000);
  }
})();

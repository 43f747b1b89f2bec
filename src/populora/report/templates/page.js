"use strict";
// The page's only script: colours, highlighting a member, CSV files, the explorer, and following a run in training.
// Text that a model wrote is set as text, never as markup.
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const unpack = (name) => {
    const letters = atob(document.getElementById(`blob-${name}`).textContent), bytes = new Uint8Array(letters.length);
    for (let place = 0; place < letters.length; place++) bytes[place] = letters.charCodeAt(place);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  };

  document.documentElement.classList.add("scripted");
  if (matchMedia("(max-width: 860px)").matches) $("#contents").open = false;

  // Highlight one member in the figures that have marks of it. Its marks are raised above the others and put back later,
  // except in the lineage, where lines do not cross and births are drawn on them.
  let picked = null;
  const places = new WeakMap();
  const raise = (mark) => {
    const axes = mark.parentNode, place = document.createComment("");
    places.set(mark, place);
    mark.replaceWith(place);
    axes.append(mark);
  };
  const pick = () => {
    for (const one of all("[data-member]")) one.setAttribute("aria-pressed", String(one.dataset.member === picked));
    for (const mark of all("[data-mark]")) {
      const chosen = mark.dataset.mark === picked;
      if (chosen === mark.classList.contains("chosen")) continue;
      mark.classList.toggle("chosen", chosen);
      if (mark.closest("#lineage")) continue;
      if (chosen) raise(mark);
      else places.get(mark).replaceWith(mark);
    }
  };

  document.addEventListener("click", async ({ target }) => {
    const member = target.closest("[data-member]"), csv = target.closest("[data-csv]");
    if (member) {
      picked = picked === member.dataset.member ? null : member.dataset.member;
      pick();
    }
    if (csv) {
      const href = URL.createObjectURL(await unpack(`csv-${csv.dataset.csv}`).blob());
      make("a", { href, download: `${csv.dataset.csv}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60000);
    }
  });

  // The explorer. The list shows a part of the matching entries, from `first` up to `last`.
  const PAGE = 200, form = $("#filters"), list = $("#list");
  let runs = [], found = [], first = 0, last = PAGE;
  const answerOf = (answer) => (answer.void ? "void" : answer.correct ? "correct" : answer.reason || "wrong");
  const current = () => runs[Number(form.run.value)] ?? { entries: [] };
  const address = (run, entry) => `#p=${encodeURIComponent(run.run)}/${encodeURIComponent(entry.id)}`;
  const named = () => {
    try { return location.hash.match(/^#p=([^/]*)\/?(.*)$/)?.slice(1).map(decodeURIComponent) ?? []; } catch { return ["", ""]; }
  };
  const number = (value) => value?.toFixed(2) ?? "–"; // an older run does not have everything
  const count = (value, one) => `${value?.toLocaleString("en") ?? "–"} ${one}${value === 1 ? "" : "s"}`;
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
  const written = new WeakMap(); // of an entry, in lower case: made when it is first looked for
  const textOf = (entry) => {
    if (!written.has(entry)) {
      const texts = [entry.program ?? "", entry.message ?? "", entry.text, ...(entry.answers ?? []).map((one) => one.text)];
      written.set(entry, texts.join("\n").toLowerCase());
    }
    return written.get(entry);
  };
  const fits = (entry, wanted) => {
    for (const name of ["step", "author", "task", "verdict"]) if (form[name].value && String(entry[name]) !== form[name].value) return false;
    const answers = entry.answers ?? [], student = form.student.value, answer = form.answer.value;
    if ((student || answer) && !answers.some((one) => (!student || one.student === student) && (!answer || answerOf(one) === answer))) return false;
    return !wanted || textOf(entry).includes(wanted);
  };
  const draw = () => {
    const run = current(), [, open] = named();
    const more = (name, textContent, onclick) => make("li", {}, make("button", { type: "button", name, textContent, onclick }));
    list.replaceChildren(...found.slice(first, last).map((entry) => {
      const rho = entry.rho === null || entry.rho === undefined ? "" : ` (${number(entry.rho)})`;
      const link = make("a", { href: address(run, entry), tabIndex: -1 }, `step ${entry.step} · ${entry.author} · ${entry.task}`, make("small", { textContent: entry.verdict + rho }));
      if (entry.id === open) link.setAttribute("aria-current", "true");
      return make("li", {}, link);
    }));
    const stop = $("a[aria-current]", list) ?? $("a", list); // one stop of the Tab key, arrows from there
    if (stop) stop.tabIndex = 0;
    if (first > 0) list.prepend(more("before", `${first} before`, () => widen(Math.max(0, first - PAGE), last, first - 1)));
    if (last < found.length) list.append(more("more", `${found.length - last} more`, () => widen(first, last + PAGE, last)));
    $("#found").textContent = `${count(found.length, "proposal")} of the ${run.entries.length.toLocaleString("en")} in this page`;
  };
  const widen = (from, to, place) => { // and go on at what is new
    [first, last] = [from, to];
    draw();
    all("a", list)[place - first].focus();
  };
  const sift = () => {
    const wanted = form.text.value.trim().toLowerCase();
    found = current().entries.filter((entry) => fits(entry, wanted));
    if (first >= found.length) [first, last] = [0, PAGE];
  };
  const restart = () => {
    [first, last] = [0, PAGE];
    sift();
    draw();
    list.scrollTop = 0;
  };
  const block = (title, text) => [make("h4", { textContent: title }), make("pre", { textContent: text })];
  const problem = (entry, { call, measures: labels }) => {
    const pairs = (side, note) => entry[side].map(([inputs, output]) => {
      const called = call.split("{inputs}").join(inputs); // replace() would read marks such as $& in what a model wrote
      return `${called}${`${inputs}${output}`.includes("\n") ? "\n→\n" : " → "}${output}${note}`;
    });
    const measures = [...Object.entries(labels).map(([name, label]) => `${label} ${entry[name] ?? "–"}`), `rho ${number(entry.rho)}`];
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
  const fill = (label, ...parts) => {
    $("#problem").setAttribute("aria-label", label);
    $("#problem").replaceChildren(...parts);
  };
  const view = (run, entry) => {
    const task = run.tasks[entry.task], title = `${entry.author}, step ${entry.step}: ${entry.task}, asks for the ${task.asks}`;
    const told = (entry.answers ?? []).reduce((sum, answer) => sum + answer.times, 0);
    const rest = entry.of > told ? [make("p", { className: "measures", textContent: `${told} of ${entry.of} answers shown` })] : [];
    fill(title,
      make("h3", { textContent: title }),
      make("p", { className: "measures" }, `${entry.verdict} · reward of ${entry.author}: ${number(entry.reward)} · `, make("a", { href: address(run, entry), textContent: "link to this problem" })),
      ...(entry.program === undefined ? [] : problem(entry, task)),
      ...(entry.answers ?? []).flatMap(reply), ...rest,
      ...block(`What ${entry.author} wrote`, entry.text),
      make("p", { className: "measures" }, `Everything of ${entry.author} in this step: `, make("code", { textContent: `populora show ${run.folder} --step ${entry.step} --teacher ${entry.author} --limit 0` })),
    );
  };
  const follow = () => { // the address names a problem
    const [name, id] = named();
    if (name === undefined) return false;
    const index = runs.findIndex((run) => run.run === name), entry = runs[index]?.entries.find((one) => one.id === id);
    if (!entry) {
      const rest = make("code", { textContent: "populora show RUN --step N --limit 0" });
      fill("Problem", make("p", {}, "The problem of this link is not in this page's sample: ", rest, " has all."));
      return true;
    }
    if (String(index) !== form.run.value) {
      form.run.value = String(index);
      refill();
      sift();
    }
    const place = found.indexOf(entry);
    if (place >= 0 && (place < first || place >= last)) [first, last] = [Math.max(0, place - PAGE / 2), place + PAGE / 2];
    view(runs[index], entry);
    draw();
    return true;
  };
  const show = () => { // and the reader goes there
    const problem = $("#problem");
    $('a[aria-current="true"]', list)?.scrollIntoView({ block: "nearest" });
    problem.focus({ preventScroll: true });
    const { top } = problem.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) problem.scrollIntoView();
  };
  const go = (by) => {
    const [, open] = named();
    const next = found[Math.max(0, Math.min(found.length - 1, found.findIndex((entry) => entry.id === open) + by))];
    if (next) location.hash = address(current(), next);
  };
  form.addEventListener("input", ({ target }) => {
    if (target === form.run) refill();
    restart();
  });
  form.addEventListener("reset", () => setTimeout(() => { refill(); restart(); }));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => { if (follow()) show(); });
  list.addEventListener("click", ({ target }) => {
    if (target.closest("a")?.hash === location.hash) show(); // open already
  });
  list.addEventListener("keydown", (event) => {
    const links = all("a", list), places = { ArrowDown: links.indexOf(event.target) + 1, ArrowUp: links.indexOf(event.target) - 1, Home: 0, End: links.length - 1 };
    if (!(event.key in places)) return;
    event.preventDefault();
    links[places[event.key]]?.focus();
  });
  $("#explorer").addEventListener("keydown", (event) => { // single letters act only while the focus is here (WCAG 2.1.4)
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") go(1);
    if (event.key === "k") go(-1);
  });
  const load = async () => {
    runs = await Promise.all(all('[id^="blob-explorer-"]').map((one) => unpack(one.id.slice("blob-".length)).json()));
    form.run.replaceChildren(...runs.map((run, index) => make("option", { value: String(index), textContent: run.run })));
    refill();
    restart();
  };
  const reloaded = performance.getEntriesByType("navigation")[0]?.type === "reload"; // then the browser restores the position
  load().then(() => {
    if (follow() && !reloaded) show();
    document.documentElement.dataset.ready = "true";
  });

  // A page that follows a run is reloaded when the server has rebuilt it, but not while the reader is in the explorer.
  const poll = async () => {
    const reply = await fetch("version", { cache: "no-store" });
    if (!reply.ok) throw new Error(`version: ${reply.status}`);
    const { version, text } = await reply.json(), stale = version !== document.body.dataset.version;
    const reading = stale && document.activeElement.closest("#explorer");
    $("#live").textContent = reading ? `${text}; reload this page to see it` : text;
    $("#live").classList.remove("lost");
    if (stale && !reading) location.reload();
  };
  const lost = (error) => {
    console.warn(error);
    $("#live").textContent = "the server has ended: this page is no longer updated";
    $("#live").classList.add("lost");
  };
  const watch = async () => {
    if (!document.hidden) await poll().catch(lost);
    setTimeout(watch, 2000);
  };
  if (document.body.dataset.version) setTimeout(watch, 2000);
})();

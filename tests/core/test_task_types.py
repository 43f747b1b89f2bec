"""Task types: three kinds in each domain, and the paper's names for those of Python."""

import copy
import json
import pickle

import pytest

from populora.core.config import Config
from populora.core.config_check import check
from populora.core.errors import ConfigError
from populora.core.types import CODE_TYPES, Kind, TaskType, task_types


def test_the_types_of_python_have_the_paper_s_names_and_others_that_of_their_domain():
    assert list(task_types(["python", "sql"])) == ["code_i", "code_o", "code_f", "sql_i", "sql_o", "sql_f"]
    assert [(task.domain, task.kind) for task in CODE_TYPES] == [("python", kind) for kind in Kind]
    assert (TaskType("sql_f").domain, TaskType("sql_f").kind) == ("sql", Kind.PROGRAM)
    assert Config(domains=("sql",)).task_types == task_types(["sql"])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task)), lambda task: TaskType(str(task))])
def test_equal_types_are_one_object(copied):
    assert copied(TaskType("sql_o")) is TaskType("sql_o")


def test_types_are_plain_text_in_json_and_as_keys():
    assert json.loads(json.dumps({TaskType.CODE_I: TaskType.CODE_O})) == {"code_i": "code_o"} and f"{TaskType.CODE_F}" == "code_f"


def test_the_types_of_python_have_one_name():
    with pytest.raises(ValueError, match="are code_i"):
        TaskType("python_i")


@pytest.mark.parametrize("name", ["code", "code_x", "_i", "Sql_i", "sql_i ", "my_sql_i", "3_i"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="task type such as"):
        TaskType(name)


@pytest.mark.parametrize("domains", [(), ("sql", "sql")])
def test_settings_name_each_domain_once_and_at_least_one(domains):
    with pytest.raises(ConfigError, match="domains is"):
        check(Config(domains=domains))

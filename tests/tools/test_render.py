from pathlib import Path

import pytest

from benchmarks.record import write_record
from tests.records import losses_record
from tools.loss_tables import losses_table
from tools.render import documents, main, rendered

ROOT = Path(__file__).parents[2]
MARK = "<!-- record: benchmarks/losses-cuda.json losses -->"
END = "<!-- end record -->"


def test_a_block_is_replaced_and_the_rest_is_left_alone(tmp_path):
    write_record(losses_record(), tmp_path / "benchmarks" / "losses-cuda.json")
    text = f"before\n\n{MARK}\nold\n{END}\n\nafter 1 < 2\n"
    new = rendered(text, tmp_path)
    table = losses_table(losses_record())
    assert new == f"before\n\n{MARK}\n{table}\n{END}\n\nafter 1 < 2\n"
    assert rendered(new, tmp_path) == new


def test_an_empty_block_and_one_without_a_record(tmp_path):
    new = rendered(f"{MARK}\n{END}\n", tmp_path)
    missing = "*No record yet: `python -m benchmarks.losses` writes `benchmarks/losses-cuda.json`.*"
    assert new == f"{MARK}\n{missing}\n{END}\n"
    assert rendered(new, tmp_path) == new


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{MARK}\nno end\n", "has no partner"),
        (f"{END}\n", "has no partner"),
        (f"{MARK}\n{MARK}\n{END}\n", "has no partner"),
        (f"<!-- record: benchmarks/x.json -->\n{END}\n", "has no partner"),
        (
            f"<!-- record: benchmarks/x.json speed -->\n{END}\n",
            "no table 'speed'; the tables are",
        ),
    ],
)
def test_a_wrong_mark_is_an_error_that_says_what_is_wrong(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        rendered(text, tmp_path)


def test_the_command_writes_and_the_check_tells(tmp_path, capsys):
    write_record(losses_record(), tmp_path / "benchmarks" / "losses-cuda.json")
    for path in (tmp_path / "README.md", tmp_path / "docs" / "a.md"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{MARK}\n{END}\n")
    assert main(["--check"], tmp_path) == 1
    err = capsys.readouterr().err
    assert "README.md is out of date" in err
    assert "a.md is out of date" in err
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    sheet = tmp_path / "benchmarks" / "losses-cuda-kinds.csv"
    sheet.write_text(sheet.read_text().replace("ms", "s"))
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0
    assert main(["--speed"], tmp_path) == 2
    (tmp_path / "README.md").write_text(f"{MARK}\n")
    assert main([], tmp_path) == 2
    assert "README.md" in capsys.readouterr().err


@pytest.mark.slow
def test_the_documents_of_this_repository_are_up_to_date(capsys):
    assert documents(ROOT)
    assert main(["--check"], ROOT) == 0, capsys.readouterr().err

import json

import pytest

from tools.numbers import with_numbers
from tools.render import main

TOKEN = "<!-- n: studies/claims.csv claim=map/value +.1% -->"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "studies"
    folder.mkdir()
    (folder / "claims.csv").write_text(
        "claim,value,low,high\nmap,0.0304,0.026,0.035\nap50,-0.0097,-0.0144,-0.005\n"
    )
    rows = [
        {"kind": "iou", "alpha": 3.0, "own": True, "ms": 2.5, "on": "a GPU"},
        {"kind": "giou", "ms": 3.5},
    ]
    (folder / "times.json").write_text(json.dumps({"device": "H200", "rows": rows, "runs": 1200}))
    return tmp_path


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("studies/claims.csv claim=map/value +.1%", "+3.0 %"),
        ("studies/claims.csv claim=ap50/value +.1%", "−1.0 %"),
        ("studies/claims.csv claim=ap50/value -.1%", "1.0 %"),
        ("studies/claims.csv claim=map/value -.1%", "−3.0 %"),
        ("studies/claims.csv claim=map/value -.0f", "0"),
        ("studies/claims.csv claim=map .1%", "3.0 % (2.6 to 3.5)"),
        ("studies/claims.csv claim=ap50 +.1%", "−1.0 % (−1.4 to −0.5)"),
        ("studies/claims.csv claim=ap50 -.1%", "1.0 % (0.5 to 1.4)"),
        ("studies/claims.csv rows/#", "2"),
        ("studies/times.json kind=iou,alpha=3,own=True/ms .2f", "2.50"),
        ("studies/times.json on=a_GPU/kind", "iou"),
        ("studies/times.json rows/1/ms", "3.5"),
        ("studies/times.json runs ,d", "1,200"),
        ("studies/times.json device", "H200"),
    ],
)
def test_a_token_prints_what_its_record_holds(root, token, text):
    start = f"<!-- n: {token} -->"
    before = f"It is {start}old<!-- /n --> today, {start}<!-- /n -->."
    after = with_numbers(before, root)
    assert after == f"It is {start}{text}<!-- /n --> today, {start}{text}<!-- /n -->."
    assert with_numbers(after, root) == after


def test_an_edited_number_is_caught_and_put_right(root, capsys):
    page = root / "docs/page.md"
    page.parent.mkdir()
    page.write_text(f"mAP rises by {TOKEN}<!-- /n -->.\n")
    assert main([], root) == 0
    right = page.read_text()
    assert f"{TOKEN}+3.0 %<!-- /n -->" in right
    assert main(["--check"], root) == 0
    page.write_text(right.replace("+3.0 %", "+3.4 %"))
    capsys.readouterr()
    assert main(["--check"], root) == 1
    err = capsys.readouterr().err
    assert "page.md is out of date" in err
    assert f"-mAP rises by {TOKEN}+3.4 %" in err
    assert f"+mAP rises by {TOKEN}+3.0 %" in err
    assert main([], root) == 0
    assert page.read_text() == right


def test_a_changed_record_is_caught(root):
    page = root / "README.md"
    page.write_text(f"mAP rises by {TOKEN}+3.0 %<!-- /n -->.\n")
    assert main(["--check"], root) == 0
    record = root / "studies/claims.csv"
    record.write_text(record.read_text().replace("0.0304", "0.0404"))
    assert main(["--check"], root) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"by {TOKEN}1 %", "write <!-- n: PATH PLACE FORMAT -->"),
        ("by <!-- n: studies/claims.csv -->1 %<!-- /n -->", "write <!-- n: PATH PLACE FORMAT -->"),
        ("by 1 %<!-- /n -->", "write <!-- n: PATH PLACE FORMAT -->"),
        (f"by {TOKEN}1\n%<!-- /n -->", "write <!-- n: PATH PLACE FORMAT -->"),
        (f"by\n{TOKEN}1 %<!-- /n -->", "put a word before the number"),
        (f"- {TOKEN}1 %<!-- /n --> more", "put a word before the number"),
        (f"1. {TOKEN}1 %<!-- /n --> more", "put a word before the number"),
        ("by <!-- n: studies/claims.csv claim=ap/value -->1<!-- /n -->", "0 rows fit"),
        ("by <!-- n: studies/claims.csv rows/value -->1<!-- /n -->", "2 rows fit; name one"),
        ("by <!-- n: studies/claims.csv claim=map/mean -->1<!-- /n -->", "no 'mean' among claim"),
        ("by <!-- n: studies/claims.csv rows/7 -->1<!-- /n -->", "index out of range"),
        ("by <!-- n: studies/claims.csv claim=map/claim .1f -->1<!-- /n -->", "could not convert"),
    ],
)
def test_a_wrong_token_is_an_error_that_quotes_it(root, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        with_numbers(text, root)
    assert "<!--" in str(caught.value)


def test_a_missing_record_is_an_error_of_the_document(root, capsys):
    (root / "README.md").write_text("by <!-- n: studies/none.csv rows/# -->1<!-- /n -->\n")
    assert main([], root) == 2
    assert "studies/none.csv" in capsys.readouterr().err

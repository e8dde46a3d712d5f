"""Labelled files of every task and form, each written by hand, and the examples that are in it."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from firth.errors import ArgumentError, CorpusError
from firth.tasks.examples import (
    Answer,
    ChoiceExample,
    Example,
    GenerateExample,
    Origin,
    SpanExample,
    TagExample,
    TextExample,
)
from firth.tasks.readers.reader import read_items, read_task
from firth.tasks.readers.squad import locate_answer


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def read(task: str, path: Path, **options: Any) -> list[Any]:
    return list(read_task(task, path, **options))


def jsonl(path: Path, *records: Any) -> Path:
    return write(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def texts(examples: list[Any]) -> list[tuple[Any, str]]:
    return [(example.labels, example.text) for example in examples]


class TestClassify:
    def test_a_table(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", 'label\ttext_a\n1\ta good film\n\n0\t"a bad\' film"\n')
        first = TextExample("a good film", None, ("1",), Origin(str(path), 2))
        assert read("classify", path) == [first, TextExample('"a bad\' film"', None, ("0",), Origin(str(path), 4))]

    def test_columns_in_any_order_and_of_any_name(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "id\tbody\tclass\ttext\n7\tx y\tp q\tz\n")
        assert texts(read("classify", path, columns={"text": "body", "label": "class"})) == [(("p q",), "x y")]
        assert texts(read("classify", path, columns={"label": "id"})) == [(("7",), "z")]
        assert texts(read("classify", path, columns={"label": "id", "text": "text"})) == [(("7",), "z")]

    def test_line_ends_marks_and_compression(self, tmp_path: Path) -> None:
        text = "\ufefflabel\ttext_a\r\n1\tgood\r\n0\tbad\r\n"
        wanted = [(("1",), "good"), (("0",), "bad")]
        assert texts(read("classify", write(tmp_path / "a.tsv", text))) == wanted
        (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(text.encode()))
        assert texts(read("classify", tmp_path / "a.tsv.gz")) == wanted

    def test_another_encoding_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tsv"
        path.write_bytes("label\ttext_a\n1\t这个地方的人都很好我们喜欢\n".encode("gb18030"))
        reading = read_task("classify", path, encoding="gbk")
        assert texts(list(reading)) == [(("1",), "这个地方的人都很好我们喜欢")]
        assert reading.notes() == [f"{path} was read as gb18030."]

    def test_json_lines(self, tmp_path: Path) -> None:
        records = [
            {"label": 1, "text": "one\ntwo"},
            {"label": "neg", "text_a": "three"},
            {"label": True, "source": "four", "target": "no"},
            {"labels": ["x", "y", "x"], "text": " five "},
            {"labels": [], "text": "six"},
            {"label": 0.5, "text": "seven"},
        ]
        wanted = [
            (("1",), "one two"), (("neg",), "three"), (("True",), "four"), (("x", "y"), "five"), ((), "six"),
            (("0.5",), "seven"),
        ]  # fmt: skip
        for name in ("a.jsonl", "a.txt"):
            assert texts(read("classify", jsonl(tmp_path / name, *records))) == wanted

    def test_lines_as_fasttext_has_them(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "__label__x __label__y-1 some text\n\nz __label__w y\n")
        assert texts(read("classify", path)) == [(("x", "y-1"), "some text"), (("w",), "z y")]

    def test_texts_without_words_are_counted(self, tmp_path: Path) -> None:
        for name, text in (
            ("a.tsv", "label\ttext_a\n1\tone\n0\t \n"),
            ("a.jsonl", '{"label": 1, "text": "one"}\n{"label": 0, "text": ""}\n'),
            ("a.txt", "__label__1 one\n__label__0\n"),
        ):
            reading = read_task("classify", write(tmp_path / name, text))
            assert texts(list(reading)) == [(("1",), "one")]
            assert (reading.counts.read, reading.counts.empty, reading.counts.skipped) == (1, 1, 0)
            assert reading.notes() == ["1 example was without text and left out."]

    def test_without_labels_every_line_counts(self, tmp_path: Path) -> None:
        plain = read_task("classify", write(tmp_path / "a.txt", "one\n\n__label__x two\tthree\n"), labelled=False)
        assert texts(list(plain)) == [(None, "one"), (None, ""), (None, "two\tthree")]
        assert plain.counts.empty == 1
        assert plain.notes() == ["1 example was without text."]
        table = write(tmp_path / "a.tsv", "text_a\tid\none\t3\n\t4\n")
        assert texts(read("classify", table, labelled=False)) == [(None, "one"), (None, "")]
        alone = write(tmp_path / "b.tsv", "text_a\none\n")
        assert texts(read("classify", alone, labelled=False)) == [(None, "one")]
        labelled = write(tmp_path / "c.tsv", "label\ttext_a\n\tone\n")
        assert texts(read("classify", labelled, labelled=False)) == [(None, "one")]
        lines = jsonl(tmp_path / "a.jsonl", {"text": "one"}, {"text": "two", "label": {}})
        assert texts(read("classify", lines, labelled=False)) == [(None, "one"), (None, "two")]


class TestPair:
    def test_a_table(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "label\ttext_a\ttext_b\nyes\tone\ttwo\n")
        assert read("pair", path) == [TextExample("one", "two", ("yes",), Origin(str(path), 2))]

    def test_numbers_stay_as_they_are_written(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "score\ttext_a\ttext_b\n4.750\tone\ttwo\n")
        assert [example.labels for example in read("pair", path)] == [("4.750",)]
        both = write(tmp_path / "b.tsv", "score\tlabel\ttext_a\ttext_b\n4.5\tyes\tone\ttwo\n")
        assert [example.labels for example in read("pair", both)] == [("yes",)]
        assert [example.labels for example in read("pair", both, columns={"label": "score"})] == [("4.5",)]

    def test_a_pair_needs_both_texts(self, tmp_path: Path) -> None:
        rows = "x\tone\ttwo\nx\t \ttwo\nx\tone\t\n"
        table = write(tmp_path / "a.tsv", "label\ttext_a\ttext_b\n" + rows)
        columns = [dict(zip(("label", "text_a", "text_b"), row.split("\t"), strict=True)) for row in rows.splitlines()]
        for path in (table, jsonl(tmp_path / "a.jsonl", *columns)):
            reading = read_task("pair", path)
            assert texts(list(reading)) == [(("x",), "one")]
            assert (reading.counts.read, reading.counts.empty) == (1, 2)

    def test_json_lines(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "a.jsonl", {"label": 1, "text_a": "one", "text_b": "two"})
        assert read("pair", path) == [TextExample("one", "two", ("1",), Origin(str(path), 1))]

    def test_without_labels(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "text_a\ttext_b\none\t\n")
        assert read("pair", path, labelled=False) == [TextExample("one", "", None, Origin(str(path), 2))]


CONLLU = """# text = it's don't
1\tit\tit\tPRON\tPRP\t_\t0\troot\t_\tSpaceAfter=No
2\t's\tbe\tAUX\tVBZ\t_\t1\tx\t_\t_
3-4\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
3\tdo\tdo\tAUX\tVB\tA=B\t1\tx\t_\t_
3.1\tghost\t_\tVERB\tVB\t_\t_\t_\t_\t_
4\tn't\tnot\tPART\tRB\t_\t1\tx\t_\t_

1\t同樣\t_\tADV\tRB\t_\t0\tx\t_\t_
"""


class TestTag:
    def test_columns(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "\nU.N.\tB-ORG\nsays\tO\n\n\nParis\tB-LOC")
        assert read("tag", path) == [
            TagExample(("U.N.", "says"), ("B-ORG", "O"), True, Origin(str(path), 2)),
            TagExample(("Paris",), ("B-LOC",), True, Origin(str(path), 6)),
        ]

    def test_columns_between_spaces(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.conll", "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects  VBZ O \n\nhe PRP O\n")
        assert [(example.words, example.tags) for example in read("tag", path)] == [
            (("EU", "rejects"), ("B-ORG", "O")), (("he",), ("O",))
        ]  # fmt: skip
        assert [example.tags for example in read("tag", path, columns={"tag": "2"})] == [("NNP", "VBZ"), ("PRP",)]
        assert [example.words for example in read("tag", path, columns={"word": "3"})] == [("B-ORG", "O"), ("O",)]

    def test_chinese_characters_have_no_spaces_between_them(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "于\tO\n2\tO\n0\tO\n1\tO\n6\tO\n年\tO\n\n1\tO\n0\tO\n\nIn\tO\n北\tO\nis\tO\n")
        assert [example.spaced for example in read("tag", path)] == [False, False, True]

    def test_conllu(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.conllu", CONLLU)
        assert read("tag", path) == [
            TagExample(("it", "'s", "do", "n't"), ("PRON", "AUX", "AUX", "PART"), True, Origin(str(path), 1)),
            TagExample(("同樣",), ("ADV",), False, Origin(str(path), 9)),
        ]
        other = write(tmp_path / "a.txt", CONLLU)  # known by what is in it
        assert read("tag", other, columns={"tag": "xpos"})[0].tags == ("PRP", "VBZ", "VB", "RB")
        assert read("tag", other, columns={"word": "lemma", "tag": "feats"})[0] == TagExample(
            ("it", "be", "do", "not"), ("_", "_", "A=B", "_"), True, Origin(str(other), 1)
        )

    def test_conllu_where_most_words_are_joined(self, tmp_path: Path) -> None:
        rows = [f"{n}\tab\tab\tNOUN\tN\t_\t0\tx\t_\tSpaceAfter=No\n" for n in (1, 2)]
        assert not read("tag", write(tmp_path / "a.conllu", "".join(rows)))[0].spaced

    def test_words_with_slashes(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "迈向/v 新/a 世纪/n 1/2/m\n\n（/w\n")
        assert read("tag", path) == [
            TagExample(("迈向", "新", "世纪", "1/2"), ("v", "a", "n", "m"), False, Origin(str(path), 1)),
            TagExample(("（",), ("w",), False, Origin(str(path), 3)),
        ]
        first = read("tag", path, columns={"tag": "segment"})[0]
        assert first == TagExample(tuple("迈向新世纪1/2"), tuple("BESBEBIE"), False, Origin(str(path), 1))

    def test_segmented_lines(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "共同  创造 美好 的\u3000新世纪\n2001年 好\n")
        assert read("tag", path) == [
            TagExample(tuple("共同创造美好的新世纪"), tuple("BEBEBESBIE"), False, Origin(str(path), 1)),
            TagExample(tuple("2001年好"), tuple("BIIIES"), False, Origin(str(path), 2)),
        ]

    def test_any_form_may_be_segmented(self, tmp_path: Path) -> None:
        columns = write(tmp_path / "a.txt", "我们\tO\n好\tO\n")
        assert read("tag", columns, columns={"tag": "segment"})[0].tags == ("B", "E", "S")
        tree = write(tmp_path / "a.conllu", CONLLU)
        assert read("tag", tree, columns={"tag": "segment"})[1].words == ("同", "樣")
        english = write(tmp_path / "b.txt", "the cat\na\n")
        assert read("tag", english, columns={"tag": "segment"})[0].tags == tuple("BIEBIE")

    def test_json_lines(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "a.jsonl", {"words": ["a", "b"], "tags": ["X", 2]}, {"tokens": ["我"], "tags": ["n"]})
        assert read("tag", path) == [
            TagExample(("a", "b"), ("X", "2"), True, Origin(str(path), 1)),
            TagExample(("我",), ("n",), False, Origin(str(path), 2)),
        ]

    def test_without_tags(self, tmp_path: Path) -> None:
        def words(name: str, text: str, **fields: str) -> list[tuple[tuple[str, ...], bool]]:
            examples = read("tag", write(tmp_path / name, text), labelled=False, columns=fields)
            assert all(example.tags is None for example in examples)
            return [(example.words, example.spaced) for example in examples]

        assert words("a.txt", "EU\nrejects\n\nhe\n") == [(("EU", "rejects"), True), (("he",), True)]
        assert words("b.txt", "EU\tO\n\nhe\tO\n") == [(("EU",), True), (("he",), True)]
        assert words("c.txt", "Mr. O'Neil paid.\n\nNo!\n") == [
            (("Mr", ".", "O'Neil", "paid", "."), True), (("No", "!"), True)
        ]  # fmt: skip
        assert words("d.txt", "我们喜欢 T恤\n") == [(tuple("我们喜欢T恤"), False)]
        assert words("d.txt", "我们喜欢你\n", word="words") == [(("我们", "喜欢", "你"), False)]
        assert words("d.txt", "我们 喜欢\n", word="spaces") == [(("我们", "喜欢"), False)]
        assert words("e.txt", "我\n们\n\n好\n") == [(("我", "们"), False), (("好",), False)]
        assert words("f.conllu", CONLLU.replace("PRON", "_"))[0] == (("it", "'s", "do", "n't"), True)
        assert words("g.txt", "好/a 人们/n\n") == [(("好", "人们"), False)]
        assert words("g.txt", "好/a 人们/n\n", tag="segment") == [(("好", "人", "们"), False)]
        assert words("h.txt", "the cat\n", tag="segment") == [(tuple("thecat"), False)]


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "A cat sat by a cat. It slept.",
                    "qas": [
                        {"id": "a", "question": "Who?", "answers": [{"text": "cat", "answer_start": 2}] * 2},
                        {"id": "b", "question": "Why?", "answers": [], "is_impossible": True, "plausible_answers": []},
                        {"id": 3, "question": "Where?", "answers": [{"text": "by a cat", "answer_start": 9}]},
                    ],
                }
            ],
        },
        {
            "paragraphs": [
                {"context": "你好", "qas": [{"question": "什么", "answers": [{"text": "好", "answer_start": 1}]}]}
            ]
        },
    ],
}


class TestSpan:
    def test_squad(self, tmp_path: Path) -> None:
        for name, text in (
            ("a.json", json.dumps(SQUAD)),
            ("b.json", json.dumps(SQUAD, indent=1)),
            ("c.txt", "\ufeff" + json.dumps(SQUAD, ensure_ascii=False)),
        ):
            path = write(tmp_path / name, text)
            passage = "A cat sat by a cat. It slept."
            assert read("span", path) == [
                SpanExample(passage, "Who?", (Answer("cat", 2),), "a", Origin(str(path), 1)),
                SpanExample(passage, "Why?", (), "b", Origin(str(path), 2)),
                SpanExample(passage, "Where?", (Answer("by a cat", 10),), "3", Origin(str(path), 3)),
                SpanExample("你好", "什么", (Answer("好", 1),), "", Origin(str(path), 4)),
            ]

    def test_repairs_are_reported(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.json", json.dumps(SQUAD))
        reading = read_task("span", path)
        list(reading)
        assert (reading.counts.read, reading.counts.repaired, reading.counts.skipped) == (4, 1, 0)
        assert reading.notes() == [
            "1 question was repaired, whose answer is not at answer_start: "
            f"{path}, question 3: 'by a cat' is not at 9 and is taken at 10."
        ]

    def test_the_nearest_place_is_taken_if_it_is_one(self) -> None:
        passage = "ab..ab....ab"  # at 0, 4, 10
        assert locate_answer("ab", 4, passage) == ("ab", 4)
        assert locate_answer("ab", 3, passage) == ("ab", 4)
        assert locate_answer("ab", 8, passage) == ("ab", 10)
        assert locate_answer("ab", 99, passage) == ("ab", 10)
        assert locate_answer("ab", -1, passage) == ("ab", 0)
        assert locate_answer("ab", -2, passage) == ("ab", 0)  # not the one at the end
        assert locate_answer("aa", 9, "baaa") == ("aa", 2)
        assert locate_answer("ab", 2, passage) is None
        assert locate_answer("ab", 7, passage) is None
        assert locate_answer(" ab ", 4, passage) == ("ab", 4)
        assert locate_answer("x", 4, passage) is None
        assert locate_answer("b....", None, passage) == ("b....", 5)
        assert locate_answer("ab", None, passage) is None

    def test_what_cannot_be_repaired_is_skipped(self, tmp_path: Path) -> None:
        questions = [
            {"question": "q", "answers": [{"text": "dog", "answer_start": 0}]},
            {"question": "q", "answers": [{"text": "cat", "answer_start": 4}]},  # 4 is as near to 2 as to 6
            {"question": "q", "answers": [{"text": "dog", "answer_start": 0}, {"text": "a", "answer_start": 0}]},
        ]
        whole = {"data": [{"paragraphs": [{"context": "a cat cat", "qas": questions}]}]}
        path = write(tmp_path / "a.json", json.dumps(whole))
        reading = read_task("span", path)
        assert [example.answers for example in reading] == [(Answer("a", 0),)]
        assert (reading.counts.read, reading.counts.skipped, reading.counts.repaired) == (1, 2, 1)
        assert reading.notes()[0] == (
            f"2 questions were skipped: the first is {path}, question 1: the answer 'dog' is not in the "
            "passage: correct answer_start or the text."
        )

    def test_json_lines(self, tmp_path: Path) -> None:
        records = [
            {"passage": "a cat", "question": "q", "answers": {"text": ["cat"], "answer_start": [2]}},
            {"context": "a cat", "question": "q", "answer": "cat"},
            {"context": "a cat", "question": "q", "answers": []},
        ]
        for name in ("a.jsonl", "a.json"):
            found = [example.answers for example in read("span", jsonl(tmp_path / name, *records))]
            assert found == [(Answer("cat", 2),), (Answer("cat", 2),), ()]

    def test_a_question_without_words_is_left_out_if_its_answer_is_wanted(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.json", json.dumps(SQUAD).replace("Why?", " "))
        for labelled, read in ((True, 3), (False, 4)):
            reading = read_task("span", path, labelled=labelled)
            assert len(list(reading)) == read
            assert reading.counts.empty == 1

    def test_without_answers(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.json", json.dumps(SQUAD).replace('"answers"', '"others"'))
        assert [example.answers for example in read("span", path, labelled=False)] == [None] * 4


class TestChoiceAndGenerate:
    def test_choices(self, tmp_path: Path) -> None:
        record = {"id": 7, "kind": "m", "context": "c\nd", "question": "q", "choices": ["x", "y "], "label": 1}
        path = jsonl(tmp_path / "a.jsonl", record)
        assert read("choice", path) == [ChoiceExample("c d", "q", ("x", "y"), 1, "7", Origin(str(path), 1))]
        bare = jsonl(tmp_path / "b.jsonl", {"context": "c", "choices": ["x", "y", "z"]})
        wanted = [ChoiceExample("c", "", ("x", "y", "z"), None, "", Origin(str(bare), 1))]
        assert read("choice", bare, labelled=False) == wanted

    def test_texts_to_be_written(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "en\tde\nI try.\tIch versuche es.\n")
        assert read("generate", path) == [GenerateExample("I try.", "Ich versuche es.", Origin(str(path), 2))]
        back = read("generate", path, columns={"source": "de", "target": "en"})
        assert back[0].source == "Ich versuche es."
        more = write(tmp_path / "b.tsv", "id\ttarget\tsource\n1\tt\ts\n")
        assert read("generate", more) == [GenerateExample("s", "t", Origin(str(more), 2))]
        lines = jsonl(tmp_path / "a.jsonl", {"id": 1, "label": "x", "source": "a\nb", "target": "c"})
        assert read("generate", lines) == [GenerateExample("a b", "c", Origin(str(lines), 1))]

    def test_both_texts_are_needed(self, tmp_path: Path) -> None:
        table = write(tmp_path / "a.tsv", "en\tde\none\teins\n\tzwei\nthree\t\n")
        lines = [
            {"source": "one", "target": "eins"},
            {"source": "", "target": "zwei"},
            {"source": "three", "target": " "},
        ]
        for path in (table, jsonl(tmp_path / "a.jsonl", *lines)):
            reading = read_task("generate", path)
            assert len(list(reading)) == 1
            assert reading.counts.empty == 2

    def test_sources_alone(self, tmp_path: Path) -> None:
        plain = read_task("generate", write(tmp_path / "a.txt", "one\n\ntwo\n"), labelled=False)
        assert [(example.source, example.target) for example in plain] == [("one", None), ("", None), ("two", None)]
        assert plain.counts.empty == 1
        table = write(tmp_path / "a.tsv", "en\tde\none\teins\n")
        assert [(e.source, e.target) for e in read("generate", table, labelled=False)] == [("one", None)]
        headed = write(tmp_path / "b.tsv", "source\none\n")
        assert [e.source for e in read("generate", headed, labelled=False)] == ["one"]


class TestItems:
    def examples(self, task: str, *items: Any, **options: Any) -> list[Example]:
        return list(read_items(task, items, **options))

    def test_tuples_and_dictionaries(self) -> None:
        assert self.examples("classify", ("x", "one"), ([1, "y"], "two"), {"label": "z", "text": "3"}) == [
            TextExample("one", None, ("x",), Origin("", 1)),
            TextExample("two", None, ("1", "y"), Origin("", 2)),
            TextExample("3", None, ("z",), Origin("", 3)),
        ]
        assert self.examples("pair", (4.5, "a", "b")) == [TextExample("a", "b", ("4.5",), Origin("", 1))]
        assert self.examples("tag", (["a", "b"], ["X", "Y"])) == [
            TagExample(("a", "b"), ("X", "Y"), True, Origin("", 1))
        ]
        span = self.examples("span", ("a cat", "q", "cat"), ("a cat", "q", [("cat", 2)]), ("a cat", "q", ()))
        assert [example.answers for example in span] == [(("cat", 2),), (("cat", 2),), ()]
        assert self.examples("choice", ("c", "q", ["x", "y"], 0)) == [
            ChoiceExample("c", "q", ("x", "y"), 0, "", Origin("", 1))
        ]
        assert self.examples("generate", ("s", "t")) == [GenerateExample("s", "t", Origin("", 1))]

    def test_items_without_labels(self) -> None:
        def bare(task: str, item: Any) -> Any:
            return self.examples(task, item, labelled=False)[0]

        assert bare("classify", "one") == bare("classify", ("x", "one")) == TextExample("one", origin=Origin("", 1))
        assert bare("pair", ("a", "b")) == bare("pair", (1, "a", "b")) == TextExample("a", "b", origin=Origin("", 1))
        assert bare("tag", ["a", "b"]) == bare("tag", "a b") == TagExample(("a", "b"), origin=Origin("", 1))
        assert bare("tag", "你好").words == ("你", "好")
        assert bare("span", ("p", "q")) == bare("span", {"context": "p", "question": "q"})
        assert bare("choice", ("c", "q", ["x", "y"])).label is None
        assert bare("generate", "s").source == "s"
        assert bare("classify", "").text == ""
        assert self.examples("classify", labelled=False) == []

    def test_examples_pass_as_they_are(self) -> None:
        origin = Origin("", 1)
        for task, example in (
            ("classify", TextExample("a", None, ("x", "y"), origin)),
            ("pair", TextExample("a", "b", ("x",), origin)),
            ("tag", TagExample(("a",), ("X",), False, origin)),
            ("span", SpanExample("a b", "q", (Answer("b", 2),), "i", origin)),
            ("span", SpanExample("a b", "q", (), "i", origin)),
            ("choice", ChoiceExample("c", "q", ("x", "y"), 1, "i", origin)),
            ("generate", GenerateExample("s", "t", origin)),
        ):
            assert self.examples(task, example) == [example]

    def test_a_generator_can_be_gone_through_twice(self) -> None:
        reading = read_items("classify", (("x", text) for text in ("one", "two")))
        assert list(reading) == list(reading)
        assert reading.counts.read == 2


def test_a_reading_begins_anew(tmp_path: Path) -> None:
    reading = read_task("classify", write(tmp_path / "a.tsv", "label\ttext_a\n1\tone\n1\t\n1\ttwo\n"))
    assert next(iter(reading)) == next(iter(reading))
    assert list(reading) == list(reading)
    assert (reading.counts.read, reading.counts.empty) == (2, 1)


def test_several_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "1.tsv", "label\ttext_a\n1\tone\n")
    write(tmp_path / "2.tsv", "text_a\tlabel\ntwo\t2\n")
    wanted = [(("1",), "one"), (("2",), "two")]
    assert texts(read("classify", tmp_path / "*.tsv")) == wanted

    class Input:
        buffer = io.BytesIO(b"__label__1 one\n__label__2 two\n")

    monkeypatch.setattr("sys.stdin", Input)
    reading = read_task("classify", "-")
    assert texts(list(reading)) == texts(list(reading)) == wanted


def test_a_long_file_is_read_in_little_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = write(tmp_path / "a.tsv", "label\ttext_a\n" + "1\tsome words of text that go on for a while\n" * 100_000)
    tracemalloc.start()
    assert sum(1 for _ in read_task("classify", path)) == 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6  # the file has more


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ArgumentError, match="did you mean 'classify'"):
        read_task("clasify", "x")
    with pytest.raises(ArgumentError, match=r"pair has no part 'txt_a'.*did you mean 'text_a'"):
        read_task("pair", "x", columns={"txt_a": "b"})
    with pytest.raises(CorpusError, match="no such file"):
        read_task("pair", "nowhere.tsv")
    with pytest.raises(CorpusError, match="give a list"):
        read_items("classify", "a text")

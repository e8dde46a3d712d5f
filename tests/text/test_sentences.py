"""The sentence splitter on sentences marked by hand, on any text at all, and on real text."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.text.sentences import split_sentences

# ⏎ marks where a sentence ends; a space stands there in the paragraph.
ENGLISH = """
He left.⏎She stayed.
One sentence without a mark at its end
Who is there?⏎Nobody!⏎Come in.
What?!⏎No way!!!⏎Really...?⏎Yes.
Mr. and Mrs. Smith met Dr. Jones, Prof. Lee and Gen. Grant.⏎They talked.
J. R. Firth taught in London.⏎He died in 1960.
The work of J. R. R. Tolkien and C. S. Lewis is known.
John F. Kennedy and Ursula K. Le Guin never met.
He moved to Washington, D.C. in 1990.⏎He liked it.
He moved to Washington, D.C.⏎The city was hot.
She lives in the U.S.⏎She likes it there.
The U.S. Army and the U.N. Security Council met.
He worked for Apple Inc. and Ford Motor Co. in Ohio.
He worked for Apple Inc.⏎In 1990 he left.
Warner Bros. Pictures released it.
They sell apples, pears, etc.⏎John buys them.
Use fruit, e.g. apples, i.e. the red ones.⏎They are sweet.
Use a tool (e.g. Make) here.
Smith et al. (2010) found it.⏎Jones et al. disagreed.
See Fig. 3, vol. 2, pp. 5-7, No. 9 and ch. 4.⏎They matter.
See vol. II for more.
He said no.⏎She said yes.
The answer was no.⏎Twelve people left.
He was ranked No. 1.⏎Then he lost.
On Jan. 5 he came; on Sept. 6 he left.
We met at 5 p.m. on Monday.⏎It rained.
We met at 5 p.m.⏎Smith was late.
We met at 5 p.m. EST in Ohio and at 9 a.m. Tuesday in Rome.
Pi is 3.14 and e is 2.72.⏎Both are irrational.
It costs $3.50.⏎Who pays?
Version 2.0 is out.⏎3.0 will follow.
Visit example.com for more.⏎Or write to me@example.org.
Open foo.py and run it.⏎The file README.md says how.
See http://example.com/?q=1&r=2.⏎It works.
The class pandas.DataFrame has numpy.ndarray inside.
"Stop!" he said.⏎"Why?" she asked.
"Stop!" John Smith said.⏎He ran.
"Who is it?" Mrs. Brown asked.
"Stop!"⏎He ran away.
"I came.⏎I saw.⏎I conquered."⏎Then he left.
“It is late.”⏎“Then go!”⏎He went.
He said, “It is late.”⏎She nodded.
'It is late.'⏎Nobody moved.
She sang "Help!" and "Who Are You?" on stage.
They made "OK K.O.! Let's Be Heroes" in 2017.
He used Yahoo! Answers every day.
He left (he was tired).⏎She stayed.
He left.⏎(He was tired.)⏎She stayed.
The house (built in 1900. Burnt in 1950) is gone.
The song (see "Why? Because") was a hit.
He left early.[1]⏎She stayed.[2][3]⏎They met again.
I was thinking... about you.
I was thinking...⏎He was not.
Well... I do not know.
I waited . . . and waited.⏎Nobody came.
... and then he left.⏎She stayed.
“Bohr [...] used the analogy of stairways.”⏎It helped.
1. First we eat.⏎2. Then we sleep.
a. Boil the water.⏎b. Add the rice.
(1) Boil the water.⏎(2) Add the rice.
He fought in World War I.⏎Many died.
They are in Group B.⏎Denmark won.
It was Plan B.⏎The first had failed.
He is a King Jr.⏎His father was King Sr. of Atlanta.
I live on Main St.⏎The house is red.
St. Louis and Mt. Everest are far from Ft. Worth.
Roe v. Wade and Ali vs. Frazier were famous.
She holds a Ph.D. in physics.⏎She teaches.
He sold phones.⏎iPhone sales rose.
It ended in 1999.⏎2000 was better.
It ended.⏎$5 was left.
It was a warm spring. the lower case goes on.
Это первое.⏎Это второе.
C'est fini.⏎À demain.
He came on the 5th.⏎“Late,” she said.
It ran at 10 km/h.⏎Nobody saw it.
He didn't.⏎She can't.⏎We won't.
The firm, Acme Ltd., closed.⏎It was old.
He is 6 ft. tall.⏎She is not.
Is it A?⏎Is it B?
It was quite a feat.⏎They won a song (feat. Sting).
The house (he built it.⏎Nobody helped him.
He scored for F.C. Porto in 2010.
She won the Super-G.⏎Italy came second.
J.-P. Sartre met Lt.-Col. Smith.
Wait!⏎Wait!⏎I am coming.
He asked why? and left.
The film stars N. T. Rama Rao.⏎It is long.
"""

# Here nothing stands between the sentences.
CHINESE = """
今天下雨。⏎我没出门。
一句没有标点的话
你是谁？⏎我是老师！⏎请进。
什么？！⏎真的！！！⏎是啊。
他来了；⏎她走了。
他说：“你好。”⏎然后走了。
他说：“你好！”⏎她没有回答。
他说“你好”，然后走了。
他说：“你好。⏎我走了。”⏎门关上了。
“你好！”他说。⏎她笑了。
“你是谁？”老人问道。⏎没有人回答。
“走吧。”小明笑着说，“天黑了。”⏎大家都走了。
“快跑！”他喊着跳了下去。
“好！”⏎“走吧！”⏎两人出发了。
「你好。」⏎「再见。」⏎門關上了。
他大叫：「失火了！」⏎眾人四散。
人群高呼“万岁！”的口号。
他说“快走！”的时候已经晚了。
报道称“要求见面。”等说法都不对。
他以“为什么？”为题写了一篇文章。
墙上贴着“打倒他！打倒他！”的标语。
发表了题为「今日香港，明日台湾？」的文章。
他看了《加油！好男儿》和《你是谁？》两部片子。⏎都很好。
《哦，街车！》是一部音乐剧。⏎它很短。
他（生于1950年；卒于1990年）是作家。⏎他写小说。
公司（英语：Company；德语：Firma）成立于1990年。
他走了。⏎（他很累。）⏎她留下。
美术馆（合称“金三角”。）等机构都在这里。
我想……也许吧。
我不知道该怎么办……⏎他也不知道。
他们上上下下，谁也不认识…⏎乘客都睡了。
苹果、梨、桃……等水果都有。
“我……”，他没有说完。
“我不知道……”他说。
……他走了。⏎她来了。
我……我不知道。
他走了……⏎她来了。
他买了苹果，花了3.5元。⏎很贵。
圆周率是3.14。⏎自然常数是2.72。
你好!⏎我是老师。⏎你呢?⏎我不知道。
他在Yahoo!奇摩工作。⏎她在Love Live!大赛上唱歌。
约翰．史密斯来了。⏎他是英国人。
今天下雨．⏎我没有出门．⏎她也没有．
今天下雨了.⏎我没有出门.⏎她也没有.
他说："你好。"⏎她没有回答。⏎"再见。"⏎他走了。
他用iPhone打电话。⏎iPad在家里。
他在Google工作。⏎Apple也想要他。
J. K. 罗琳写了《哈利·波特》。⏎她是英国人。
Mr. Smith是英国人。⏎他住在北京。
他毕业于M.I.T.并留校任教。⏎他很高兴。
详见第3章。[1]⏎另见第4章。[2]
他说：‘你好。’⏎她笑了。
这是“A；B”两类。
这样好吗？——鲁迅
第一，要快；⏎第二，要好；⏎第三，要省。
【快讯】今天下雨。⏎明天晴。
永安果栏（Wing On)成立。⏎后来（1905年）搬到香港。
“真的吗？”——她不信。
"""
MIXED = [
    ("He left. 他走了。She stayed.", ["He left.", "他走了。", "She stayed."]),
    ("Hello! 你好。Bye.", ["Hello!", "你好。", "Bye."]),
    ("尸体被净化. 之后举行仪式. The end.", ["尸体被净化.", "之后举行仪式.", "The end."]),
    ("他 说 ： “ 你好 。 ” 然后 走 了 。", ["他 说 ： “ 你好 。 ”", "然后 走 了 。"]),
    ("今天下雨。　　明天晴。", ["今天下雨。", "明天晴。"]),
    ("It was spring.The house stood empty.", ["It was spring.", "The house stood empty."]),
    ("He came.\u00a0She left.", ["He came.", "She left."]),
    ("  He left.   She stayed.  ", ["He left.", "She stayed."]),
    ("", []),
    (" \t\u3000", []),
    ("?!", ["?!"]),
    ("。。。", ["。。。"]),
]
# As WikiText and other tokenised corpora write it.
TOKENISED = [
    "He had a role in 2000 .⏎He had another in 2001 .",
    "It was <unk> .⏎<unk> was not .",
    'He said , " I came .⏎I saw . "⏎Then he left .',
    'He was " tired . "⏎" We were not , " she said .',
    "He left ( he was tired ) .⏎She stayed .",
    "Mr. <unk> lives in St. Louis .⏎It is hot .",
    "Where is he ?⏎He is gone !⏎Good .",
    'It is 3 @.@ 5 km long .⏎" Angel of Death " is a song .',
    "Canadians . . . would rather listen .⏎They did .",
    "He was tired .⏎( It was late . )⏎She left .",
]


def marked(table: str) -> list[str]:
    return [line for line in table.splitlines() if line]


def test_the_tables_are_as_long_as_they_claim() -> None:
    assert len(marked(ENGLISH)) >= 60
    assert len(marked(CHINESE)) >= 40


@pytest.mark.parametrize("line", marked(ENGLISH) + TOKENISED)
def test_english(line: str) -> None:
    assert split_sentences(line.replace("⏎", " ")) == line.split("⏎")


@pytest.mark.parametrize("line", marked(CHINESE))
def test_chinese(line: str) -> None:
    assert split_sentences(line.replace("⏎", "")) == line.split("⏎")


@pytest.mark.parametrize(("text", "sentences"), MIXED)
def test_mixed_scripts_and_spaces(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


PUNCTUATION = ".!?…。！？；．,，“”「」（）()《》[]\"' \t\u3000"
WORDS = (
    "The he I Mr U.S e.g J No 3 3.14 p.m a.com Yahoo said <unk> iPhone Ä é 😀 [1] ... 他 说 你好 的 等 中 \U00020000"
)
PIECES = st.sampled_from([*PUNCTUATION, *WORDS.split(), "\ud800", "\x00"])


@given(st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join)))
def test_nothing_is_lost_changed_or_empty(text: str) -> None:
    text = text.replace("\n", " ")
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@given(st.lists(st.sampled_from(["He left.", "She stayed!", "Who knew?", "他走了。", "她没有来！"]), max_size=20))
def test_whole_sentences_come_back_as_they_were(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        ".",
        "... ",
        ". ",
        'foo . " bar ',
        "e.g. ",
        "(a. ",
        "“",
        "。”",
        "……",
        "（甲；",
        "《",
        '"Oh! Ah ',
        "J. ",
        ")",
        "A.B.",
    ],
)
def test_a_long_line_takes_time_in_proportion_to_its_length(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def paragraphs(shared_data: Path, name: str) -> list[str]:
    with gzip.open(shared_data / "lm" / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
        return [line.strip() for line in itertools.islice(file, 20_000) if line.strip()]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("wiki_en", 18, 25), ("wikinews_en", 18, 25), ("wiki_zh", 35, 55), ("wikitext2.test", 20, 30)],
)
def test_sentences_of_real_text_are_as_long_as_sentences_are(
    shared_data: Path, name: str, least: int, most: int
) -> None:
    long = [text for text in paragraphs(shared_data, name) if len(text) > 200]
    sentences = [sentence for text in long for sentence in split_sentences(text)]
    if name == "wiki_zh":
        lengths = [len(sentence) for sentence in sentences]
    else:
        lengths = [len(sentence.split()) for sentence in sentences]
    assert least < sum(lengths) / len(lengths) < most
    assert sum(length < 3 for length in lengths) < 0.01 * len(lengths)


@pytest.mark.shared
def test_sentences_marked_by_linguists(shared_data: Path) -> None:
    """Of the boundaries found in the paragraphs of a treebank of web text, nearly all are marked there too."""
    with gzip.open(shared_data / "tag" / "ud_en_ewt.dev.conllu.gz", "rt", encoding="utf-8") as file:
        lines = file.read().replace("# newdoc", "# newpar").split("# newpar")
    right = found = 0
    for part in lines:
        marked_there = [line[len("# text = ") :] for line in part.split("\n") if line.startswith("# text = ")]
        ends = set(itertools.accumulate(len(sentence) + 1 for sentence in marked_there[:-1]))
        text, position = " ".join(marked_there), 0
        for sentence in split_sentences(text)[:-1]:
            position = text.index(sentence, position) + len(sentence) + 1
            found += 1
            right += position in ends
    assert found > 900
    assert right > 0.98 * found

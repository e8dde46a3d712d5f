"""The grammars behind the oracle corpora: an English-like one and a Chinese-like one.

Within a topic a noun of that topic has ten times the weight it has elsewhere. A noun's class decides which verbs
may follow it, and a verb's object class which nouns, so the company of an ambiguous word tells its sense. The
grammars of all topics have the same rules with other probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from firth.text.grammar import Alternative, Grammar, choose

Words = Mapping[str, str]  # words separated by spaces, under the name of their topic or object class

TOPIC_WEIGHT = 10.0
ADJECTIVE_SHARE = 0.3

ENGLISH_NOUNS: Mapping[str, Words] = {
    "animals": {
        "farm": "horse goat hen",
        "harbour": "gull crab otter",
        "town": "pigeon rat parrot",
        "forest": "owl badger stag",
    },
    "people": {
        "farm": "farmer shepherd ploughboy",
        "harbour": "sailor diver captain",
        "town": "baker lawyer clerk",
        "forest": "hunter ranger forester",
    },
    "tools": {
        "farm": "rake plough bucket",
        "harbour": "anchor rope oar",
        "town": "ledger scale lamp",
        "forest": "axe saw trap",
    },
    "places": {
        "farm": "barn field orchard",
        "harbour": "pier beach lighthouse",
        "town": "street office square",
        "forest": "clearing grove cabin",
    },
    "foods": {
        "farm": "turnip pumpkin pear",
        "harbour": "herring oyster biscuit",
        "town": "cake pie sausage",
        "forest": "mushroom berry chestnut",
    },
    "firms": {
        "farm": "dairy mill",
        "harbour": "shipyard cannery",
        "town": "court insurer",
        "forest": "sawmill lodge",
    },
}
ENGLISH_SENSES: Mapping[str, Words] = {  # ambiguous word -> class: the topic of that sense
    "bank": {"firms": "town", "places": "harbour"},
    "bat": {"animals": "forest", "tools": "town"},
    "crane": {"animals": "forest", "tools": "harbour"},
    "mole": {"animals": "farm", "places": "harbour"},
    "seal": {"animals": "harbour", "tools": "town"},
    "spring": {"places": "forest", "tools": "farm"},
}
ENGLISH_VERBS: Mapping[str, Words] = {  # class of the subject -> class of the object ("" for none): verbs
    "animals": {"": "sleep wander shiver yawn", "animals": "chase follow fear", "foods": "eat nibble smell"},
    "people": {
        "": "laugh whistle rest",
        "animals": "feed tame catch",
        "firms": "trust sue praise",
        "foods": "cook taste share",
        "places": "walk hurry return",
        "tools": "lift repair borrow",
    },
    "tools": {"": "rust creak snap"},
    "places": {"": "flood crumble gleam"},
    "foods": {"": "rot ripen dry"},
    "firms": {"": "prosper close fail", "people": "hire pay dismiss", "tools": "order import"},
}
ENGLISH_SUBJECTS = {"people": 4, "animals": 4, "firms": 2, "tools": 2, "places": 2, "foods": 1}
PREPOSITIONS = ("near", "behind", "opposite", "below")
ADJECTIVES = ("old", "small", "grey", "strange", "heavy", "clean", "famous", "plain")
ADVERBS = ("today", "again", "often", "slowly", "here")

CHINESE_CLASSIFIERS = {  # one measure word per class
    "animals": "只",
    "people": "位",
    "tools": "把",
    "places": "座",
    "plants": "棵",
    "vehicles": "辆",
    "clothes": "件",
    "drums": "面",
}
CHINESE_NOUNS: Mapping[str, Words] = {
    "animals": {"village": "山羊 母鸡", "city": "鸽子 麻雀", "forest": "狐狸 松鼠", "festival": "狮子 孔雀"},
    "people": {"village": "农民 渔夫", "city": "司机 律师", "forest": "猎人 护林员", "festival": "歌手 演员"},
    "tools": {"village": "锄头 镰刀", "city": "雨伞 钥匙", "forest": "斧头 弓箭", "festival": "扇子 二胡"},
    "places": {"village": "磨坊 粮仓", "city": "车站 银行", "forest": "木屋 山洞", "festival": "庙 戏台"},
    "plants": {"village": "白菜 萝卜", "city": "梧桐 玫瑰", "forest": "松树 橡树", "festival": "牡丹 梅花"},
    "vehicles": {
        "village": "牛车 拖拉机",
        "city": "卡车 出租车",
        "forest": "摩托 吉普车",
        "festival": "花车 马车",
    },
    "clothes": {"village": "布衫 棉袄", "city": "西装 衬衫", "forest": "斗篷 皮衣", "festival": "长袍 戏服"},
    "drums": {"village": "腰鼓", "city": "军鼓", "forest": "木鼓", "festival": "大鼓 铜锣"},
}
CHINESE_SENSES: Mapping[str, Words] = {
    "杜鹃": {"animals": "forest", "plants": "city"},
    "白头翁": {"animals": "forest", "plants": "village"},
    "黄牛": {"animals": "village", "people": "festival"},
    "甲壳虫": {"animals": "forest", "vehicles": "city"},
    "猎豹": {"animals": "forest", "vehicles": "city"},
}
CHINESE_VERBS: Mapping[str, Words] = {
    "animals": {"": "睡觉 奔跑 鸣叫", "animals": "追 咬", "plants": "吃 踩"},
    "people": {
        "": "唱歌 休息 微笑",
        "animals": "喂 抓",
        "tools": "拿 修理",
        "places": "参观 离开",
        "plants": "种 浇",
        "vehicles": "驾驶 坐",
        "clothes": "穿 洗",
        "drums": "敲 借",
    },
    "tools": {"": "生锈 断裂"},
    "places": {"": "倒塌 着火"},
    "plants": {"": "枯萎 发芽"},
    "vehicles": {"": "抛锚 疾驰"},
    "clothes": {"": "褪色 破损"},
    "drums": {"": "轰鸣 震动"},
}
CHINESE_SUBJECTS = {"people": 5, "animals": 5} | dict.fromkeys(
    ("tools", "places", "plants", "vehicles", "clothes", "drums"), 1
)
STRIKE_OR_KNIT = "打"  # 打鼓 strikes a drum, 打毛衣 knits a garment: a verb whose object tells its sense
DETERMINERS = ("这", "那", "每", "一", "两", "三")
CHINESE_ADJECTIVES = ("老", "小", "漂亮", "奇怪", "安静", "沉重", "干净", "有名")

NUMBERS = ("singular", "plural")
Rules = dict[str, tuple[Alternative, ...]]


def add_s(word: str) -> str:
    """The plural of a regular noun, or the singular of a regular verb.

    >>> [add_s(word) for word in ("cat", "berry", "boy", "watch")]
    ['cats', 'berries', 'boys', 'watches']
    """
    if word.endswith(("s", "sh", "ch", "x")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def inflect_noun(noun: str, number: str) -> str:
    """The singular or plural of a noun."""
    return noun if number == "singular" else add_s(noun)


def inflect_verb(verb: str, number: str) -> str:
    """The form of a verb that agrees with a singular or plural subject."""
    return add_s(verb) if number == "singular" else verb


def english_grammar(topic: str) -> Grammar:
    """Sentences such as "the old goats behind the barn nibble every pear.", biased towards a topic."""
    rules: Rules = {
        "S": choose((6, ("the", "THE")), (2, ("every", "ONE-singular")), (2, ("many", "ONE-plural"))),
        "THE": _with_adjective("EITHER"),
        "EITHER": choose(*((1.0, (f"SUBJECT-{n}",)) for n in NUMBERS)),
        "ADJECTIVES": choose(*((1.0, (f" {a}",)) for a in ADJECTIVES), (1.0, (" very", "ADJECTIVES"))),
        "PHRASE": _pick(PREPOSITIONS, "NP-places"),
        "END": choose((3, (".",)), *((0.2, (f" {adverb}", ".")) for adverb in ADVERBS)),
    }
    for number in NUMBERS:
        rules[f"ONE-{number}"] = _with_adjective(f"SUBJECT-{number}")
        rules[f"SUBJECT-{number}"] = choose(*((w, (f"{c}-{number}",)) for c, w in ENGLISH_SUBJECTS.items()))
    for kind in ENGLISH_NOUNS:
        rules |= _english_object(kind, topic)
        for number in NUMBERS:
            rules |= _english_subject(kind, number, topic)
    return Grammar(rules)


def _english_object(kind: str, topic: str) -> Rules:
    """A noun phrase of one class, with any determiner that fits its number."""
    numbers = {n: f"NOUN-{kind}-{n}" for n in NUMBERS}
    rules: Rules = {
        f"NP-{kind}": choose(
            (6, (" the", f"THE-{kind}")),
            (2, (" every", f"ONE-{kind}-singular")),
            (2, (" many", f"ONE-{kind}-plural")),
        ),
        f"THE-{kind}": _with_adjective(f"EITHER-{kind}"),
        f"EITHER-{kind}": choose(*((1.0, (noun,)) for noun in numbers.values())),
    }
    for number, noun in numbers.items():
        rules[f"ONE-{kind}-{number}"] = _with_adjective(noun)
        rules[noun] = choose(
            *((w, (" " + inflect_noun(word, number),)) for w, word in _plain(ENGLISH_NOUNS, kind, topic)),
            *((w, (f" {inflect_noun(word, number)}|{kind}",)) for w, word in _ambiguous(ENGLISH_SENSES, kind, topic)),
        )
    return rules


def _english_subject(kind: str, number: str, topic: str) -> Rules:
    """A subject of one class and number with the rest of the sentence, whose verb agrees with it.

    An ambiguous subject is followed by its verb at once, so that two words tell the sense.
    """
    name = f"{kind}-{number}"
    plain = list(_plain(ENGLISH_NOUNS, kind, topic))
    rules: Rules = {
        name: choose(
            (sum(w for w, _ in plain), (f"PLAIN-{name}", f"AFTER-{name}")),
            *(
                (w, (f" {inflect_noun(word, number)}|{kind}", f"VP-{name}"))
                for w, word in _ambiguous(ENGLISH_SENSES, kind, topic)
            ),
        ),
        f"PLAIN-{name}": choose(*((w, (" " + inflect_noun(word, number),)) for w, word in plain)),
        f"AFTER-{name}": choose((6, (f"VP-{name}",)), (4, ("PHRASE", f"MORE-{name}"))),
        f"MORE-{name}": choose((3, (f"VP-{name}",)), (1, ("PHRASE", f"VP-{name}"))),
        f"VP-{name}": choose(*((1.0, (f"VERB-{o}-{name}",)) for o in ENGLISH_VERBS[kind])),
    }
    for other, verbs in ENGLISH_VERBS[kind].items():
        link = (" to",) if other == "places" else ()
        rest = (*link, f"NP-{other}", "END") if other else ("END",)
        rules[f"VERB-{other}-{name}"] = _pick((inflect_verb(v, number) for v in verbs.split()), *rest)
    return rules


def chinese_grammar(topic: str) -> Grammar:
    """Sentences such as 那只非常老的山羊在一座磨坊旁边吃白菜了。, unspaced, biased towards a topic."""
    rules: Rules = {
        "S": choose(*((1.0, (d, "SUBJECT")) for d in DETERMINERS)),
        "SUBJECT": choose(
            *((w, (CHINESE_CLASSIFIERS[c], f"NOMINAL-{c}", f"AFTER-{c}")) for c, w in CHINESE_SUBJECTS.items())
        ),
        "ADJECTIVES": choose(*((1.0, (a, "的")) for a in CHINESE_ADJECTIVES), (1.0, ("非常", "ADJECTIVES"))),
        "END": choose((2, ("。",)), (1, ("了", "。"))),
    }
    for kind, classifier in CHINESE_CLASSIFIERS.items():
        rules[f"NOUN-{kind}"] = choose(
            *((w, (word,)) for w, word in _plain(CHINESE_NOUNS, kind, topic)),
            *((w, (f"{word}|{kind}",)) for w, word in _ambiguous(CHINESE_SENSES, kind, topic)),
        )
        rules[f"NOMINAL-{kind}"] = _with_adjective(f"NOUN-{kind}")
        rules[f"NP-{kind}"] = choose(*((1.0, (d, classifier, f"NOMINAL-{kind}")) for d in DETERMINERS))
        rules[f"OBJECT-{kind}"] = choose((3, (f"NP-{kind}",)), (2, (f"NOUN-{kind}",)))
        rules[f"AFTER-{kind}"] = choose((7, (f"VP-{kind}",)), (3, ("在", "NP-places", "旁边", f"VP-{kind}")))
        rules[f"VP-{kind}"] = choose(*_chinese_verbs(kind))
    return Grammar(rules)


def _chinese_verbs(kind: str) -> Iterator[Alternative]:
    for other, verbs in CHINESE_VERBS[kind].items():
        for verb in verbs.split():
            yield 1.0, (verb, f"OBJECT-{other}", "END") if other else (verb, "END")
    if kind == "people":
        for other in ("clothes", "drums"):
            yield 2.0, (f"{STRIKE_OR_KNIT}|{other}", f"NOUN-{other}", "END")


def _with_adjective(noun: str) -> tuple[Alternative, ...]:
    return choose((1 - ADJECTIVE_SHARE, (noun,)), (ADJECTIVE_SHARE, ("ADJECTIVES", noun)))


def _pick(words: Iterator[str] | tuple[str, ...], *rest: str) -> tuple[Alternative, ...]:
    return choose(*((1.0, (f" {word}", *rest)) for word in words))


def _plain(nouns: Mapping[str, Words], kind: str, topic: str) -> Iterator[tuple[float, str]]:
    """Weights and nouns of a class; within a topic the first is the most frequent, as in Zipf's law."""
    for home, words in nouns[kind].items():
        for rank, word in enumerate(words.split(), start=1):
            yield (TOPIC_WEIGHT if home == topic else 1.0) / rank, word


def _ambiguous(senses: Mapping[str, Words], kind: str, topic: str) -> Iterator[tuple[float, str]]:
    for word, homes in senses.items():
        if kind in homes:
            yield (TOPIC_WEIGHT if homes[kind] == topic else 1.0), word

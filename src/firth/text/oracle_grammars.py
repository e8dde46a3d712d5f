"""The grammars behind the oracle corpora: an English-like one and a Chinese-like one.

Nouns of the topic have ten times their weight elsewhere. A noun's class determines which verbs may follow it, and a
verb's object class which nouns, so the context of an ambiguous word disambiguates it. The grammars of all topics have
the same rules with different probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from firth.text.grammar import Alternative, Grammar, choose

Words = Mapping[str, str]  # words separated by spaces, under the name of their topic or object class

TOPIC_WEIGHT = 10.0
ADJECTIVE_PROBABILITY = 0.3


def _by_topic(topics: str, **classes: str) -> Mapping[str, Words]:
    """Class -> topic -> words, from the words of each class listed by topic."""
    return {
        name: dict(zip(topics.split(), map(str.strip, words.split("|")), strict=True))
        for name, words in classes.items()
    }


ENGLISH_NOUNS = _by_topic(
    "farm harbour town forest",
    animals="horse goat hen | gull crab otter | pigeon rat parrot | owl badger stag",
    people="farmer shepherd ploughboy | sailor diver captain | baker lawyer clerk | hunter ranger forester",
    tools="rake plough bucket | anchor rope oar | ledger scale lamp | axe saw trap",
    places="barn field orchard | pier beach lighthouse | street office square | clearing grove cabin",
    foods="turnip pumpkin pear | herring oyster biscuit | cake pie sausage | mushroom berry chestnut",
    firms="dairy mill | shipyard cannery | court insurer | sawmill lodge",
)
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

CHINESE_CLASSES = ("animals", "people", "tools", "places", "plants", "vehicles", "clothes", "drums")
CHINESE_CLASSIFIERS = dict(zip(CHINESE_CLASSES, "只位把座棵辆件面", strict=True))  # one measure word per class
CHINESE_NOUNS = _by_topic(
    "village city forest festival",
    animals="山羊 母鸡 | 鸽子 麻雀 | 狐狸 松鼠 | 狮子 孔雀",
    people="农民 渔夫 | 司机 律师 | 猎人 护林员 | 歌手 演员",
    tools="锄头 镰刀 | 雨伞 钥匙 | 斧头 弓箭 | 扇子 二胡",
    places="磨坊 粮仓 | 车站 银行 | 木屋 山洞 | 庙 戏台",
    plants="白菜 萝卜 | 梧桐 玫瑰 | 松树 橡树 | 牡丹 梅花",
    vehicles="牛车 拖拉机 | 卡车 出租车 | 摩托 吉普车 | 花车 马车",
    clothes="布衫 棉袄 | 西装 衬衫 | 斗篷 皮衣 | 长袍 戏服",
    drums="腰鼓 | 军鼓 | 木鼓 | 大鼓 铜锣",
)
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
CHINESE_SUBJECTS = {"people": 5, "animals": 5} | dict.fromkeys(CHINESE_CLASSES[2:], 1)
STRIKE_OR_KNIT = "打"  # 打鼓 strikes a drum, 打毛衣 knits a garment: its object disambiguates the verb
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
    return noun if number == "singular" else add_s(noun)


def english_grammar(topic: str) -> Grammar:
    """Sentences like "the old goats behind the barn nibble every pear.", biased towards a topic."""
    rules: Rules = {
        **_determined("S", "", "", "SUBJECT"),
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


def _determined(name: str, space: str, suffix: str, noun: str) -> Rules:
    """A noun phrase with any determiner that agrees in number."""
    weighted = ((6, "the", "THE" + suffix), (2, "every", f"ONE{suffix}-singular"), (2, "many", f"ONE{suffix}-plural"))
    return {
        name: choose(*((weight, (space + word, rest)) for weight, word, rest in weighted)),
        "THE" + suffix: _with_adjective("EITHER" + suffix),
        "EITHER" + suffix: choose(*((1.0, (f"{noun}-{number}",)) for number in NUMBERS)),
    }


def _english_object(kind: str, topic: str) -> Rules:
    rules = _determined(f"NP-{kind}", " ", f"-{kind}", f"NOUN-{kind}")
    for number in NUMBERS:
        rules[f"ONE-{kind}-{number}"] = _with_adjective(f"NOUN-{kind}-{number}")
        rules[f"NOUN-{kind}-{number}"] = choose(
            *((w, (" " + inflect_noun(word, number),)) for w, word in _plain(ENGLISH_NOUNS, kind, topic)),
            *((w, (f" {inflect_noun(word, number)}|{kind}",)) for w, word in _ambiguous(ENGLISH_SENSES, kind, topic)),
        )
    return rules


def _english_subject(kind: str, number: str, topic: str) -> Rules:
    """A subject and the rest of the sentence; an ambiguous one is directly followed by its verb."""
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
        rules[f"VERB-{other}-{name}"] = _pick((add_s(v) if number == "singular" else v for v in verbs.split()), *rest)
    return rules


def chinese_grammar(topic: str) -> Grammar:
    """Sentences like 那只非常老的山羊在一座磨坊旁边吃白菜了。, unspaced, biased towards a topic."""
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
    return choose((1 - ADJECTIVE_PROBABILITY, (noun,)), (ADJECTIVE_PROBABILITY, ("ADJECTIVES", noun)))


def _pick(words: Iterator[str] | tuple[str, ...], *rest: str) -> tuple[Alternative, ...]:
    return choose(*((1.0, (f" {word}", *rest)) for word in words))


def _plain(nouns: Mapping[str, Words], kind: str, topic: str) -> Iterator[tuple[float, str]]:
    """Weights and nouns of a class; weights within a topic follow Zipf's law."""
    for own_topic, words in nouns[kind].items():
        for rank, word in enumerate(words.split(), start=1):
            yield (TOPIC_WEIGHT if own_topic == topic else 1.0) / rank, word


def _ambiguous(senses: Mapping[str, Words], kind: str, topic: str) -> Iterator[tuple[float, str]]:
    for word, topics in senses.items():
        if kind in topics:
            yield (TOPIC_WEIGHT if topics[kind] == topic else 1.0), word

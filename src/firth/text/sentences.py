"""Sentence splitting of paragraphs in English, Chinese or both.

One regular expression finds every run of punctuation that could end a sentence, with the quotes and brackets that close
after it; only these candidates are examined. Sentences are slices of the unchanged paragraph.

- Western punctuation (`.` `!` `?` `...`) must be followed by a space and a sentence start: a capital, a digit, an
  opening quote or bracket, a letter of a script without case. Abbreviations, initials and list numbers do not end a
  sentence; those that can (`U.S.`, `Inc.`) end it before a typical first word (`The`, `He`). In tokenised text
  (`in 2000 . He had`) a separate full stop is no abbreviation.
- Chinese punctuation (`。！？；……`, and `!` `?` `.` between Han) needs neither space nor capital.

Sentences are not split within brackets and titles: （…；…）, 《加油！好男儿》. Punctuation inside quotes ends a
sentence, so 他说：“你好。”然后走了。 is two sentences, but not if the speaker follows the quote (“你好！”他说。) or the
quote is a phrase of the clause around it (高呼“万岁！”的人群).
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Possessive quantifiers: no backtracking, so matching takes linear time.
_CANDIDATE = re.compile(
    r"([.!?…。！？；｡．]++(?:\s\.++(?!\w))*+)"  # punctuation; ". . ." is one run
    r"((?:\s?[”」』）》】]|[’〉〕｝»)\]}\"']|\[\d{1,3}\])*+)"  # closing quotes and brackets; [1] is a reference
    r"\s*+"
)
_WIDE = frozenset("。！？；｡．")

# Abbreviations that never end a sentence.
_NEVER_FINAL = _words(
    """Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof Profs Rev Revd Gen Maj Brig Col Lt Cpl Sgt Capt Cmdr Cdr Adm
    Pvt Pte Pfc Spc Sen Sens Rep Reps Gov Govs Hon Fr Msgr Supt Insp Det Pres Amb Atty Mt Mts Ft Ste mr mrs
    ms dr prof vs v cf viz e.g i.e eg ie a.k.a N.B P.S var ssp subsp spp incl Govt"""
)
# Abbreviations before a number; otherwise ordinary words.
_BEFORE_NUMBER = _words("No no Art art Arts Sec sec Ex ex Eq eq Sect sect b d fl r n l s t q est pop Cal op")
# Abbreviations that end a sentence only before a typical first word.
_RARELY_FINAL = _words(
    """Inc Ltd Co Corp Cos Bros Jr Sr Jnr Snr Esq St Rd Ave Blvd Hwy Sq Dept Univ Assn Assoc Bldg Est Inst
    Pty al Ph.D Ed.D M.Sc B.Sc M.Phil D.Phil LL.B LL.M Lt.Col Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov
    Dec Mon Tue Tues Wed Thu Thur Thurs Fri Sat Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan Ky La
    Mass Md Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa Penn Tenn Tex Va Vt Wash Wis Wyo Ont Que Nos nos Vol
    vol Vols vols p pp P Fig fig Figs figs Ch ch Op Pt pt c ca Ca approx Rs inc ltd co corp bros jr sr jan
    feb aug sept oct nov dec tr dir feat Feat ft trans ed eds lit esp sp ab ext"""
)
_STARTERS = _words(
    """The A An He She It They We You I In On At As By For From To Of This That These Those There His Her
    Its Their Our My Your After Before When While Since During Although Though However But And Or So If Then
    Some Many Most Several Both Each Every All Another Other Such Not What Who Where Why How Which With
    Without Under Among According Also Later Once One Two Because Despite Following Until Upon Through Today
    Prior Here Now Even Like Within Around Over Again Especially First Between Nevertheless Meanwhile
    Additionally Furthermore Moreover Currently Originally Initially Eventually Due"""
)
_CLOCK = _words("a.m p.m A.M P.M")
_AFTER_CLOCK = re.compile(
    r"[\d(]|(?:[A-Z]{2,}|Eastern|Central|Mountain|Pacific|Greenwich|British|Korea|(?:Mon|Tues|Wednes|Thurs|Fri|Satur"
    r"|Sun)day|January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_WORD_BEFORE = re.compile(  # but not the letter in "Super-G" or "120-B"
    r"(?<![A-Za-zÀ-ɏ0-9'’])(?!(?<=[a-z0-9]-).$)[A-Za-zÀ-ɏ](?:\.?[A-Za-zÀ-ɏ])*$"
)
_WORD_AFTER = re.compile(r"[\"'“‘(\[]*\s?([A-Za-z]+)(?=[\s,:'’])")
_ACRONYM = re.compile(r"[^\W\d_](?:\.[^\W\d_])*$")
_LABELLED = re.compile(  # "World War I. Many": not an initial
    r"(?:War|Group|Pool|Block|Class|Grade|Type|Zone|Plan|Part|Phase|Schedule|Division|Serie|Série|Category|List"
    r"|[Pp]oint|[Vv]itamin|[Hh]epatitis)\s[A-Z]$"
)
_ROMAN = re.compile(r"[IVXLC]+\b")
_LIST_MARK = re.compile(r"\s*[(\[]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,4})$")
_SENTENCE_START = re.compile(
    r"[^\W_a-zß-öø-ÿ]|[a-z][A-Z]|\(?[\da-z]{1,2}[.)]\s[A-Z]|[\"“«「『《【¿¡$£€¥#@•]|['‘]\s?[^\W_a-z]"
    r"|[(\[（]\s?[\"'“‘]?[^\W\d_a-z]|(?<=\s[.!?\"]\s)<\w|https?:"
)
_BRANDS = re.compile(r"(?:Yahoo|Jeopardy|SmackDown|Love ?Live)$")
_TOKEN_CLOSING = re.compile(r"(?:\s(?:''|[”’»)\]]|'(?=\s\")))*(\s\")?(?=\s|$)")

_VERBS = (
    "said|says|saying|asked|asks|asking|replied|cried|shouted|shouting|exclaimed|added|wrote|answered|chanted|yelled"
)
# The speaker after a quotation, unless it introduces the next one.
_SPEAKER = re.compile(
    rf"(?!(?:He|She|They|We|You|It)\b)(?:[A-Z][\w.'’-]*\s){{1,4}}(?:{_VERBS}|told)\b(?<!I told)"
    r"(?!,?:?\s[\"“])"
)
_SPEAKER_ZH = re.compile(
    r"(?:(?![没不未])[\u4e00-\u9fff]){1,10}?(?:[说问喊叫]着|(?:[说答喊叫嚷骂]|(?<!疑)问|(?<![知报街])道)"
    r"(?=[。！？…]|[，,]\s?[“「『\"]))"
)
# Introduction of direct speech; without it a quotation is a phrase of the clause around it.
_INTRODUCES = re.compile(rf"(?:[：:，,。！？；.!?]|\b(?:{_VERBS})|[说道问答喊叫称曰云示到]|[问对诉][你我他她]们?)\s?$")
_CONTINUES_ZH = re.compile(r"的|等(?![到待])|之(?![后前])|为(?=[题名主首例代])")
_PAUSES_ZH = frozenset("，、：；,:;。！？.!?…·—～-")

_CONTEXT = 1000  # characters before a candidate that are examined
_MAX_BRACKET = 200
_MAX_PHRASE = 60


def split_sentences(text: str) -> list[str]:
    """The stripped, non-empty sentences of a paragraph.

    >>> split_sentences("Mr. Firth paid $3.50. “Why?” he asked.")
    ['Mr. Firth paid $3.50.', '“Why?” he asked.']
    >>> split_sentences("今天下雨。“真的吗？”他问。是的！")
    ['今天下雨。', '“真的吗？”他问。', '是的！']
    """
    sentences = []
    start = 0
    quoted = False  # whether a straight quote is open at `start`
    for candidate in _CANDIDATE.finditer(text):
        end = _sentence_end(text, start, candidate, quoted)
        if end:
            sentences.append(text[start:end].strip())
            quoted = _is_quoted(text, start, end, quoted)
            start = end
    rest = text[start:].strip()
    if rest:
        sentences.append(rest)
    return sentences


def _sentence_end(text: str, start: int, candidate: re.Match[str], quoted: bool) -> int:
    """The end of the sentence from `start` if this candidate ends it, else 0."""
    at, stop = candidate.span(1)
    begin = candidate.end()
    if begin == len(text) or (at - start < 3 and not text[start:at].strip()):
        return 0
    if at - start > _CONTEXT:
        start, quoted = at - _CONTEXT, False
    if text[at] in _WIDE or text[stop - 1] in _WIDE:
        return _chinese_end(text, start, candidate, quoted)
    spaced = begin > candidate.end(2)
    if _is_east_asian(text[begin]):
        ellipsis = text[stop - 1] == "…" or text.startswith("..", at)
        if ellipsis or (not spaced and _is_east_asian(text[at - 1])):
            return _chinese_end(text, start, candidate, quoted)
    if spaced:
        return _western_end(text, start, candidate, quoted)
    # A missing space ("in spring.The house") if the words decide it: file names are not split.
    before = text[max(start, at - 3) : at]
    if candidate[0] == "." and before.isalpha() and before.islower() and text[begin].isupper():
        return stop if _word_after(text, stop) in _STARTERS else 0
    return 0


def _western_end(text: str, start: int, candidate: re.Match[str], quoted: bool) -> int:
    at, stop = candidate.span(1)
    closed, begin = candidate.end(2), candidate.end()
    alone = text[at - 1].isspace()  # tokenised text, where closing quotes are separate too
    if alone and (closing := _TOKEN_CLOSING.match(text, stop)):
        closes = closing[1] is None or _is_quoted(text, start, at, quoted)
        closed = begin = closing.end() if closes else closing.start(1)
        while begin < len(text) and text[begin].isspace():
            begin += 1
    if not _SENTENCE_START.match(text, begin):
        return 0
    if text[at:stop] == ".":
        continues = not alone and _is_abbreviation(text, start, at, begin)
    else:
        continues = _is_aside(text, start, candidate, begin, quoted)
    return 0 if continues or _is_enclosed(text, start, closed) else closed


def _is_abbreviation(text: str, start: int, at: int, begin: int) -> bool:
    if at - start >= 7 and text[at - 7 : at].isalpha():
        return False
    if at - start <= 6 and _LIST_MARK.match(text, start, at):
        return True
    found = _WORD_BEFORE.search(text, max(start, at - 12), at)
    word = found[0] if found else ""
    if word in _NEVER_FINAL:
        return True
    if word in _CLOCK:
        return _AFTER_CLOCK.match(text, begin) is not None
    if word in _BEFORE_NUMBER:
        return text[begin].isdigit() or _ROMAN.match(text, begin) is not None
    if word in _RARELY_FINAL or (_ACRONYM.match(word) and (len(word) > 1 or word.isupper())):
        labelled = _LABELLED.search(text, max(start, at - 12), at)
        return not labelled and _word_after(text, begin) not in _STARTERS
    return False


def _is_aside(text: str, start: int, candidate: re.Match[str], begin: int, quoted: bool) -> bool:
    """Whether a question, exclamation or ellipsis is only a part of the sentence around it."""
    at, closing = candidate.start(1), candidate[2]
    following = _word_after(text, begin)
    if candidate[1][-1] in ".…" and following == "I":
        return True  # always capitalised
    before = text[start:at].rstrip()[-1:]
    if before == "[":
        return following not in _STARTERS
    if before in "({“‘「:,（" or _BRANDS.search(text, max(start, at - 12), at):
        return True
    if ")" in closing:
        return bool(text[start : text.rfind("(", start, at)].strip())
    if closing:
        return _SPEAKER.match(text, begin) is not None
    return _is_in_phrase(text, start, at, quoted)


def _chinese_end(text: str, start: int, candidate: re.Match[str], quoted: bool) -> int:
    at, stop = candidate.span(1)
    closed, begin, closing = candidate.end(2), candidate.end(), candidate[2]
    if text[begin] in _PAUSES_ZH or not _is_full_stop(text, start, candidate):
        return 0
    if closing[:1] == '"' and not _is_quoted(text, start, at, quoted):
        closed, closing = stop, ""  # the quote opens the next sentence
    if closing:
        if _CONTINUES_ZH.match(text, begin) or _SPEAKER_ZH.match(text, begin) or closing[0] in "》〉":
            return 0
        opened = max(text.rfind("（", start, at), text.rfind("(", start, at), start)
        if closing[0] in "）)" and text[start:opened].strip():
            return 0
    in_phrase = text[stop - 1] not in "。｡" and _is_in_phrase(text, start, at, quoted)
    return 0 if in_phrase or _is_enclosed(text, start, closed) else closed


def _is_full_stop(text: str, start: int, candidate: re.Match[str]) -> bool:
    """Whether an ellipsis follows a whole clause, or a dot between Han is not part of a name."""
    at, marks = candidate.start(1), candidate[1]
    if marks in (".", "．"):
        return at - start > 3 and text.find("。", max(0, at - 500), at + 500) < 0
    if not marks.strip("….") and not candidate[2]:
        clause = text[max(start, at - 3) : at]
        return len(clause) == 3 and clause.isalnum() and not _CONTINUES_ZH.match(text, candidate.end())
    return True


def _is_enclosed(text: str, start: int, end: int) -> bool:
    """Whether a bracket within the sentence is still open at `end` and closes soon."""
    for openings, closings in (("(（", ")）"), ("《", "》")):  # （ is often closed by )
        positions = [position for mark in openings if (position := text.find(mark, start, end)) >= 0]
        if positions and _excess(text, openings, closings, start, end) > 0:
            closes = _excess(text, closings, openings, end, end + _MAX_BRACKET) > 0
            if closes and text[start : min(positions)].strip():
                return True
    return False


def _excess(text: str, marks: str, others: str, start: int, end: int) -> int:
    found = sum(text.count(mark, start, end) for mark in marks)
    return found - sum(text.count(mark, start, end) for mark in others)


def _is_in_phrase(text: str, start: int, at: int, quoted: bool) -> bool:
    """Whether the position is inside a short quotation that is a phrase of a clause: a slogan, a title."""
    for opening, closing in ("“”", "「」", "『』", '""'):
        opened = text.rfind(opening, start, at)
        if opened <= start or text.find(closing, at, at + _MAX_PHRASE) < 0:
            continue
        if _is_quoted(text, start, at, quoted) if opening == closing else text.find(closing, opened, at) < 0:
            return not _INTRODUCES.search(text, max(start, opened - 12), opened)
    return False


def _is_quoted(text: str, start: int, at: int, quoted: bool) -> bool:
    return quoted ^ (text.count('"', start, at) % 2 == 1)


def _is_east_asian(character: str) -> bool:
    return "\u2e80" <= character <= "\uffef" or "\U00020000" <= character <= "\U0003ffff"


def _word_after(text: str, begin: int) -> str:
    found = _WORD_AFTER.match(text, begin)
    return found[1] if found else ""

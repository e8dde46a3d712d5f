"""Discourse markers: words at the beginning of a sentence that tell its relation to the one before."""

from __future__ import annotations

RELATIONS = ("addition", "contrast", "cause", "result", "example", "time", "summary")
"""The relations in the order of their numbers, after the levels of the Penn Discourse Treebank."""

MARKERS: dict[str, tuple[str, ...]] = {
    "addition": (
        *("also", "in addition", "additionally", "moreover", "furthermore", "besides", "similarly", "likewise"),
        *("另外", "此外", "而且", "并且", "同时", "同样", "除此之外", "不仅如此", "再者"),
    ),
    "contrast": (
        *("but", "however", "nevertheless", "nonetheless", "yet", "on the other hand", "in contrast", "by contrast"),
        *("conversely", "instead", "still", "although", "though", "despite this", "on the contrary", "unfortunately"),
        *("但", "但是", "然而", "不过", "可是", "相反", "尽管如此", "虽然如此", "反之", "却"),
    ),
    "cause": (
        *("because", "because of this", "since", "due to this", "for this reason"),
        *("因为", "由于", "这是因为", "原因是"),
    ),
    "result": (
        *("therefore", "thus", "hence", "consequently", "as a result", "accordingly", "so"),
        *("因此", "所以", "于是", "因而", "从而", "结果", "故此", "可见"),
    ),
    "example": (
        *("for example", "for instance", "specifically", "in particular", "namely"),
        *("例如", "比如", "譬如", "具体来说", "具体而言", "尤其是", "特别是"),
    ),
    "time": (
        *("then", "later", "afterwards", "subsequently", "meanwhile", "previously", "eventually", "finally"),
        *("at the same time", "after that", "before that", "soon"),
        *("然后", "后来", "随后", "此后", "之后", "与此同时", "最后", "最终", "不久", "此前"),
    ),
    "summary": (
        *("in short", "in summary", "overall", "in conclusion", "in general", "in fact", "indeed", "that is"),
        *("总之", "总的来说", "总体而言", "综上所述", "事实上", "其实", "实际上", "也就是说", "换句话说"),
    ),
}
"""Relation -> markers in English and in Chinese."""

"""Run by `try_tokenizer` in a process of its own: reads a tokenizer.json from standard input and encodes some texts.

python _trial.py SECONDS MEGABYTES < tokenizer.json
"""

import resource
import sys

TEXTS = (
    "The quick brown fox, (isn't it?) mails a_b@c.com/x: 3.14 + 1,000 = e-mail!\n",
    "我们喜欢研究自然语言处理，因为3个GPT模型在iPhone12上。《书》 안녕하세요 สวัสดี e\u0301 ﬁne",
    *(10_000 // len(unit) * unit for unit in ("a", " ", "ab ", "0", "我", "\n", "a!", "aA1 ", "\u0301")),
)


def main() -> None:
    seconds, megabytes = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import tokenizers

    backend = tokenizers.Tokenizer.from_str(sys.stdin.buffer.read().decode())
    for encoding in backend.encode_batch(list(TEXTS), add_special_tokens=True):
        backend.decode(encoding.ids)


if __name__ == "__main__":
    main()

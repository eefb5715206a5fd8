"""Questions that any language model answers: fluent words against the same letters scrambled.

Half of them repeat a sentence that the question has just shown twice, in ten languages, so that a model that
knows none of these languages can still copy. The other half end a plain English sentence. Golds stand at every
position equally often.
"""

from __future__ import annotations

from llmc.mcbin import Task

POSITIONS = 4

_TO_COPY = (
    ("The old dog sleeps near the", "warm kitchen fire."),
    ("My sister plays the piano every", "single Sunday evening."),
    ("El perro negro duerme cerca de la", "puerta grande."),
    ("La maison bleue se trouve devant la", "petite rivière."),
    ("Der kleine Junge spielt gern mit seinem", "neuen Freund."),
    ("Il gatto bianco dorme sopra il", "tavolo rotondo."),
    ("O menino gosta muito de comer", "arroz com feijão."),
    ("De jonge vrouw leest elke avond een", "mooi boek."),
    ("Mała dziewczynka lubi czytać", "stare książki."),
    ("Мой брат живёт в большом", "красивом городе."),
    ("Küçük çocuk her sabah süt", "içmek istiyor."),
    ("Anak kecil itu suka makan", "pisang goreng."),
)

_TO_END = (
    ("At night we can see the moon and the", "stars in the sky."),
    ("She was very tired, so she went to", "bed early that night."),
    ("He opened the door and walked into the", "room without a word."),
    ("Fish live in the water and birds fly in the", "air above the trees."),
    ("In the winter it is cold, and in the summer it is", "hot and sunny."),
    ("I would like a cup of tea with milk and", "sugar, please."),
    ("The children went to school to learn how to", "read and write."),
    ("Thank you very much for your", "help with this work."),
    ("The train was late, so we had to wait at the", "station for an hour."),
    ("He drank a glass of water because he was", "very thirsty."),
    ("Once upon a time there was a king who lived in a", "large castle."),
    ("Please close the window, because it is getting", "cold in here."),
)


def canary_tasks() -> list[Task]:
    """Return the 24 canary questions with four options each."""
    questions = [(f"{start} {end}\n{start} {end}\n{start}", end) for start, end in _TO_COPY]
    questions += list(_TO_END)
    tasks = []
    for number, (question, end) in enumerate(questions):
        options = [_scramble(end, seed) for seed in range(1, POSITIONS)]
        gold = number % POSITIONS
        options.insert(gold, end)
        tasks.append(Task(question, tuple(options), gold))
    return tasks


def _scramble(text: str, seed: int) -> str:
    """Reorder the letters of a text over its words, always in the same way, and never as it was."""
    letters = [c for c in text if c not in " .,"]
    step = (3, 5, 7)[seed - 1]
    while len(letters) % step == 0:
        step += 2
    mixed = iter([letters[(i * step + seed) % len(letters)] for i in range(len(letters))])
    return "".join(c if c in " .," else next(mixed) for c in text)

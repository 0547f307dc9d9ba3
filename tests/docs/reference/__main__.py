"""Write the generated reference pages."""

from docs.reference import generated

for file, text in generated():
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")

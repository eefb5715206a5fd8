"""The one look of llmc's tables: no lines, bold heads, columns two spaces apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def plain_table(*columns: str, gap: int = 2) -> Table:
    """Return an empty table; ``columns`` are left-aligned, and long text in them is folded."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table

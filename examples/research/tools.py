"""The tools over a folder of documents. A mistake comes back as text that a model can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from outrider.examples.research.folder import FolderError
from outrider.examples.research.frame import render_found, render_passages
from outrider.examples.research.policy import READ, SEARCH
from outrider.examples.research.search import MAX_LINE, Passage, search

if TYPE_CHECKING:
    from outrider.examples.research.folder import DocumentFolder

MAX_QUERY = 1_000  #: characters
MAX_READ_LINES = 200


def document_tools(folder: DocumentFolder) -> list[BaseTool]:
    """`search_documents` and `read_document` over one folder."""

    def search_documents(query: str) -> str:
        """Find the passages of the documents that fit the words of the query best.

        Shows each with its file and line numbers, and of how many passages each word of the query is part.
        """
        return render_found(search(folder, query[:MAX_QUERY]))

    def read_document(path: str, start_line: int, end_line: int) -> str:
        """Read lines start_line to end_line (from 1, both included, 200 at most) of a document.

        The path is relative, as search_documents shows it.
        """
        try:
            lines = folder.lines(path)
        except FolderError as error:
            raise ToolException(str(error)) from None
        if not 1 <= start_line <= min(end_line, len(lines)):
            raise ToolException(
                f"lines {start_line} to {end_line} cannot be read: {path} has the lines 1 to {len(lines)}; "
                "start_line comes first"
            )
        end = min(end_line, len(lines), start_line + MAX_READ_LINES - 1)
        shown = tuple(line[:MAX_LINE] for line in lines[start_line - 1 : end])
        rest = f"\n{path} ends at line {len(lines)}; shown up to {end}" if end < end_line else ""
        return render_passages(Passage(path, start_line, shown)) + rest

    made = [
        StructuredTool.from_function(search_documents, name=SEARCH, handle_tool_error=True),
        StructuredTool.from_function(read_document, name=READ, handle_tool_error=True),
    ]
    return list(made)

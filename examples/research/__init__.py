"""The demo's agents: answers from a folder of documents, each claim with a citation that can be checked."""

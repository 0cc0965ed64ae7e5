"""The glossary: frozen dataclasses, enums and interfaces that cross a stage. Standard library only, no I/O."""

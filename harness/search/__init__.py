"""Answers -> next question or Boundary; pure."""

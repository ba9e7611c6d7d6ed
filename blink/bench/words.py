"""Words for prompts that are text: common ones, each of which most vocabularies hold as one token."""

from __future__ import annotations

TEXT = """
the of and to in is that for it as was with be by on not he this are or his from at which but have an
had they you were their one all we can her has there been if more when will would who so no she other
its may these what them than some him time into only do such my new about out also two any up first
could our then most see me should after said your very between made many over did now must before well
through how even people work life much where each good own under here make long both being way down same
year world still last might great old three during against right too because state part never place
house use number home always water city day name high small large group point fact hand system without
school again public line set country every found power left open case order form family end came body
head word days light side room door money later night given ever local early white red green blue black
young war law help next best need feel turn keep let run went put took told asked seemed called began
paper book music food story real sure full short strong clear free field ground level class girl boy man
woman child mother father friend table street river north south east west land air fire sea tree horse
car road hour week month past future why yes less rather quite yet ago soon
"""
WORDS = tuple(TEXT.split())

"""The subject of every commit after START: `module: imperative`, at most 72 characters, without a full stop.

A clone that does not reach back to START (shallow, an archive, another project's history) has nothing to compare with.
"""

import re
import subprocess

import tidy

START = "7f074da9dbd869beeaea7f336736fa0624aa2a93"
# Subjects that were published before anybody saw the complaint, as full hashes: history is not rewritten.
PUBLISHED = {"0800c21596b1ba466389103e398f8187a6f7a9e5",
             "2e84c0df441adc40c9e858183742418d4bff73ef"}
SUBJECT_LIMIT = 72

MODULE = re.compile(r"[a-z][A-Za-z0-9_./-]*(, ?[a-z][A-Za-z0-9_./-]*)*: (.*)")
# What a verb in the imperative cannot be: an article, a pronoun, a number word; another form of a verb.
NO_VERB = set("a an the this that these those it its they their he she who what which when where how why no not nothing "
              "nobody one two each every all some any there here is are was were has have can may must".split())
OTHER_FORM = re.compile(r"[a-z]{2,}(ed|ing)")
VERBS = set("bring embed exceed feed need proceed seed shed speed spring succeed string".split())


def check_subject(subject):
    """What is wrong with it."""
    complaints = []
    if len(subject) > SUBJECT_LIMIT:
        complaints.append(f"{len(subject)} characters, the limit is {SUBJECT_LIMIT}")
    match = MODULE.fullmatch(subject)
    if not match:
        return complaints + ["begins with no `module: `"]
    first = match.group(2).split(" ")[0].lower()
    if first in NO_VERB or (OTHER_FORM.fullmatch(first) and first not in VERBS):
        complaints.append(f'"{first}" is no verb in the imperative')
    if subject.endswith("."):
        complaints.append("ends with a full stop")
    return complaints


def git(*arguments):
    """Its output, or None: there is no git, no history, no such commit."""
    try:
        done = subprocess.run(["git", "-C", str(tidy.ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def commits_after(start):
    """(hash, subject) of each, merges left out; None when this clone cannot say."""
    if git("merge-base", "--is-ancestor", start, "HEAD") is None:
        return None
    listed = git("log", "--no-merges", "--format=%H %s", f"{start}..HEAD")
    return None if listed is None else [line.split(" ", 1) for line in listed.splitlines()]


def check_repository():
    commits = commits_after(START)
    if commits is None:
        print(f"skipped: this copy has no history that reaches back to {START[:12]}")
        return []
    return [f"commit {commit[:12]}: {complaint}: {subject}" for commit, subject in commits if commit not in PUBLISHED
            for complaint in check_subject(subject)]


def self_test():
    for good in ("link: replay unacknowledged control messages after reconnect", "engine, workers: skip pieces",
                 "readme: feed the reader", "docs/adding.md: add a page", f"a: {'b' * 69}"):
        tidy.expect(check_subject(good))
    tidy.expect(check_subject(f"a: {'b' * 70}"), "73 characters, the limit is 72")
    tidy.expect(check_subject("Add a page"), "begins with no `module: `")
    tidy.expect(check_subject("sim: the kept slots have their new name"), '"the" is no verb')
    tidy.expect(check_subject("sim: added a test"), '"added" is no verb')
    tidy.expect(check_subject("sim: adding a test"), '"adding" is no verb')
    tidy.expect(check_subject("sim: add a test."), "ends with a full stop")
    assert commits_after("0" * 40) is None


if __name__ == "__main__":
    tidy.main(check_repository, self_test)

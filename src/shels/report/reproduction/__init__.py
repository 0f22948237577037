"""The pages of the repository that say whether the paper is reproduced, written from its packed results."""

// Fixtures are a module of their own, so that who installs the program does not download them.
module github.com/optimem/optimem/loader/exported/testdata

go 1.26.0

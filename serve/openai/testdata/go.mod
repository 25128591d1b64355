// The scripts are a module of their own, so that who installs the program does not download them.
module github.com/optimem/optimem/serve/openai/testdata

go 1.26.0

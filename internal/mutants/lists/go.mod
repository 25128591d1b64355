// Planted mistakes are a module of their own, so that who installs the program does not download them.
module github.com/optimem/optimem/internal/mutants/lists

go 1.26.0

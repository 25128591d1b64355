//go:build !files

// Package running is about one model in one process: flags that say which, in how much memory and for which inputs; files of
// inputs and outputs; the session that they ask for, and what its failures mean to a user. The commands that plan, run and
// measure a model are here, with those that show or measure what it runs on. It does not know the commands that write text,
// answer requests or make files.
//
//	root.AddCommand(running.RunCommand(line), running.PlanCommand(line))
package running

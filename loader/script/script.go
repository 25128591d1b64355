// Package script parses the code of TorchScript archives: the small, regular subset of Python in which torch.jit.save
// writes classes, methods and functions. [Parse] takes the files under code/ and returns a [Program]: every class and
// function by its qualified name, with types, statements and expressions as an immutable syntax tree. Printing a file
// and parsing the text again gives the same tree.
//
// The package knows names, types and syntax. It does not know archives, pickles or tensors, and it evaluates nothing:
// constants and attributes are filled in by the loader as inert values, and package models gives operators a meaning.
// What torch.jit.save never writes (operators, comprehensions, decorators, lambdas) is refused as unsupported.
//
//	files := func(yield func(name, src string) bool) { yield("__torch__.py", text) }
//	program, err := script.Parse(files, script.Options{Meter: meter, Depth: 200})
//	forward := program.Method("__torch__.Net", "forward")
//	for _, arg := range forward.Args[1:] {
//		fmt.Println(arg.Name, arg.Type)
//	}
package script

import (
	"fmt"
	"sort"
)

// A Program is the parsed code of a TorchScript archive. It is not changed after the loader has returned it and may
// be read from many goroutines.
type Program struct {
	// Files are the parsed files in the order in which they were given.
	Files []*File
	// Classes holds every class by its qualified name, such as "__torch__.torch.nn.modules.linear.Linear".
	Classes map[string]*Class
	// Functions holds every free function by its qualified name.
	Functions map[string]*Function
	// HighestConstant is the reference to the highest entry of Constants that the code makes, nil where it makes none.
	HighestConstant *ConstantRef

	// Root is the module that was saved; the loader fills it in.
	Root *Object
	// Constants is the table that [ConstantRef] indexes; the loader fills it in.
	Constants []Value
	// Traced tells what the module was traced with, where it was; the loader fills it in.
	Traced []TracedCall
}

// Method returns the method of a class, or nil where there is no such class or method.
func (p *Program) Method(class, name string) *Function {
	if c := p.Classes[class]; c != nil {
		return c.Method(name)
	}
	return nil
}

// Position says where in the code a node stands.
func (p *Program) Position(pos Pos) Position {
	i := sort.Search(len(p.Files), func(i int) bool { return p.Files[i].base > pos }) - 1
	if i < 0 || pos == 0 {
		return Position{}
	}
	return p.Files[i].position(int(pos - p.Files[i].base))
}

// A File is one parsed source file.
type File struct {
	// Name is the slash-separated name below code/, such as "__torch__/torch/nn/modules/linear.py".
	Name string
	// Defs are the classes and functions in order: *Class or *Function.
	Defs []Node

	base  Pos     // position of the first byte, unique in the program
	lines []int32 // byte offset of the start of each line
}

func (f *File) position(offset int) Position {
	line := sort.Search(len(f.lines), func(i int) bool { return int(f.lines[i]) > offset })
	if line == 0 {
		return Position{File: f.Name, Line: 1, Col: offset + 1}
	}
	return Position{File: f.Name, Line: line, Col: offset - int(f.lines[line-1]) + 1}
}

// A Pos is a place in the program's code, 0 where unknown; [Program.Position] makes it readable.
type Pos int32

// A Position is a readable place. Line and Col count from 1, Col in bytes.
type Position struct {
	File      string
	Line, Col int
}

// String returns "file:line:col".
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col) }

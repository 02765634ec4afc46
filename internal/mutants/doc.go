// Package mutants checks that the tests find mistakes. Each mutant is one mistake that a programmer
// makes in a file of this module: an inverted condition, a call that is missing, a dropped error. It
// names the behaviour that the mistake breaks, and the test that has to fail: the lowest one, which
// is that of a block for a decision, that of a part for what the part does with a host, and that of
// package agent for the moments at which the agent calls the parts.
//
// The package has only tests. TestMutants runs with -mutants (make mutants). It compiles each
// mutant with go test -overlay, so that no file of the tree changes, and runs the mutant's test.
// Without the flag, TestMutantsAreOfTheSources checks that the text of every mutant is still in its
// file, and that its test exists.
//
// # Add a mutant
//
// Add a line to the list of its area in list_test.go, with a text that occurs exactly once in the
// file. Run it with make mutants ONLY=area. If it survives, no test needs the behaviour: write one.
//
// Before a test is deleted because another test proves the same, each of its assertions needs a
// mutant that the other test kills.
package mutants

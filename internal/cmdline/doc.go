// Package cmdline implements command lines with subcommands on package flag: flags
// and arguments in any order, errors that list the allowed values, help by topic,
// and completion for bash, zsh and fish.
//
// The shells' scripts do not contain the program's words: they run its hidden
// command "__complete". Names of running pods and new flags need no new script.
package cmdline

// Command describes one subcommand for help and completion.
type Command struct {
	Name  string
	Args  string // its arguments, as the usage line has them
	Short string // its purpose, in a line
	Topic string // its heading in the usage
	Words string // what may stand first among its arguments, with blanks between
	Pods  bool   // names of pods are arguments of it
}

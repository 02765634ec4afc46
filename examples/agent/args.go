package main

import (
	"flag"

	"github.com/nodewright/nodewright/internal/cmdline"
)

// parse is [cmdline.Parse] with the help of fs's command on std.out. Completion
// takes the flags instead, and nothing runs.
func parse(fs *flag.FlagSet, std stdio, args []string) (plain, after []string, err error) {
	if std.flags != nil {
		std.flags(fs)
		return nil, nil, flag.ErrHelp
	}
	return cmdline.Parse(fs, args, func() { help(std.out, fs) })
}

// parseNames is parse for commands to which "--" only ends the flags.
func parseNames(fs *flag.FlagSet, std stdio, args []string) ([]string, error) {
	plain, after, err := parse(fs, std, args)
	return append(plain, after...), err
}

var also = cmdline.Also

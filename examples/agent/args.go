package main

import (
	"flag"

	"github.com/nodewright/nodewright/internal/cmdline"
)

// parse calls [cmdline.Parse], which prints help to std.out. During shell completion it returns
// the flags' names instead.
func parse(fs *flag.FlagSet, std stdio, args []string) (plain, after []string, err error) {
	if std.flags != nil {
		std.flags(fs)
		return nil, nil, flag.ErrHelp
	}
	return cmdline.Parse(fs, args, func() { help(std.out, fs) })
}

// parseNames is parse for commands without a part after "--".
func parseNames(fs *flag.FlagSet, std stdio, args []string) ([]string, error) {
	plain, after, err := parse(fs, std, args)
	return append(plain, after...), err
}

var also = cmdline.Also

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// parse parses flags and arguments in any order, as people type them; all
// that follows "--" is handed back apart. A wrong flag is an error that names
// it, its value and what is allowed. -h prints the command's help to std.out
// and is flag.ErrHelp.
func parse(fs *flag.FlagSet, std stdio, args []string) (plain, after []string, err error) {
	var wrong error
	fs.VisitAll(func(f *flag.Flag) {
		f.Value = checked{f.Value, func(value string, err error) {
			wrong = fmt.Errorf("%s=%q: want %s", dashed(f.Name), value, wanted(f.Value, err))
		}}
	})
	fs.SetOutput(io.Discard)
	for i, a := range args {
		if a == "--" {
			args, after = args[:i], args[i+1:]
			break
		}
	}
	for {
		switch err := fs.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			help(std.out, fs)
			return nil, nil, err
		case wrong != nil:
			return nil, nil, wrong
		case err != nil:
			return nil, nil, fmt.Errorf("%w; %s -h lists the flags", err, fs.Name())
		case fs.NArg() == 0:
			return plain, after, nil
		}
		plain = append(plain, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

// parseNames is parse for commands to which "--" only ends the flags.
func parseNames(fs *flag.FlagSet, std stdio, args []string) ([]string, error) {
	plain, after, err := parse(fs, std, args)
	return append(plain, after...), err
}

// checked is a flag's value that tells what is wrong with a new one; package
// flag makes mere text of it.
type checked struct {
	flag.Value
	bad func(value string, err error)
}

func (c checked) Set(s string) error {
	err := c.Value.Set(s)
	if err != nil {
		c.bad(s, err)
	}
	return err
}

func (c checked) IsBoolFlag() bool { return isBool(c.Value) }

func isBool(v flag.Value) bool {
	b, ok := v.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// wanted says what values a flag takes, or else what was wrong with this one.
func wanted(v flag.Value, err error) string {
	if c, ok := v.(checked); ok {
		v = c.Value
	}
	if g, ok := v.(flag.Getter); ok {
		switch g.Get().(type) {
		case bool:
			return "true or false"
		case int, int64:
			return "a whole number"
		case time.Duration:
			return "a duration such as 30s, 5m or 1h30m"
		}
	}
	return err.Error()
}

// also gives a flag a second name.
func also(fs *flag.FlagSet, name, other string) {
	f := fs.Lookup(name)
	fs.Var(f.Value, other, f.Usage)
}

// dashed writes a flag as people do: -n, but --root-dir.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// help tells how a command is used. Flags of one meaning share a line.
func help(w io.Writer, fs *flag.FlagSet) {
	i := slices.IndexFunc(commands(), func(c command) bool { return "agent "+c.name == fs.Name() })
	if i >= 0 {
		c := commands()[i]
		fmt.Fprintf(w, "usage: agent %s\n\n%s\n", strings.TrimSpace(c.name+" "+c.args), c.short)
	}
	var flags []*flag.Flag
	names := map[string][]string{} // by what they do
	fs.VisitAll(func(f *flag.Flag) {
		if names[f.Usage] == nil {
			flags = append(flags, f)
		}
		names[f.Usage] = append(names[f.Usage], dashed(f.Name))
	})
	if len(flags) > 0 {
		fmt.Fprintln(w)
	}
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	defer func() { _ = tw.Flush() }()
	for _, f := range flags {
		value, text := flag.UnquoteUsage(f)
		if isBool(f.Value) {
			value = ""
		}
		if !slices.Contains([]string{"", "0", "0s", "false"}, f.DefValue) {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(tw, "  %s\t%s\n", strings.TrimSpace(strings.Join(names[f.Usage], ", ")+" "+strings.ToUpper(value)), text)
	}
}

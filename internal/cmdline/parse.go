package cmdline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// Parse parses flags and arguments in any order. It returns the arguments after
// "--" separately. The error for a wrong flag has the flag, its value and the
// allowed values. For -h it calls help and returns flag.ErrHelp.
func Parse(fs *flag.FlagSet, args []string, help func()) (plain, after []string, err error) {
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
			help()
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

// checked is a flag's value that keeps the error of a wrong one; package flag
// makes mere text of it.
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

func (c checked) IsBoolFlag() bool { return IsBool(c.Value) }

// boolFlag is package flag's optional interface of values that may stand alone.
type boolFlag interface{ IsBoolFlag() bool }

// IsBool reports whether a flag with this value takes no argument.
func IsBool(v flag.Value) bool {
	b, ok := v.(boolFlag)
	return ok && b.IsBoolFlag()
}

// wanted returns the values that a flag takes; if they are unknown, it returns the
// text of err.
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

// Also adds a second name of a flag.
func Also(fs *flag.FlagSet, name, other string) {
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

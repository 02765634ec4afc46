package cmdline

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Usage prints all commands by topic, in the order of the first command of each
// topic. Commands without a topic are hidden.
func Usage(w io.Writer, program string, commands []Command) error {
	var topics []string
	for _, c := range commands {
		if c.Topic != "" && !slices.Contains(topics, c.Topic) {
			topics = append(topics, c.Topic)
		}
	}
	for _, topic := range topics {
		fmt.Fprintf(w, "\n%s:\n", topic)
		for _, c := range commands {
			if c.Topic == topic {
				fmt.Fprintf(w, "  %s %-10s %s\n  %*s   %s\n", program, c.Name, c.Args, len(program)+len("describe"), "", c.Short)
			}
		}
	}
	return nil
}

// Help prints the usage of one command. Flags with the same usage text share a
// line. topic returns the heading of a flag; topics is the order of the headings.
func Help(w io.Writer, program string, c Command, fs *flag.FlagSet, topics []string, topic func(*flag.Flag) string) error {
	fmt.Fprintf(w, "usage: %s %s\n\n%s\n", program, strings.TrimSpace(c.Name+" "+c.Args), c.Short)
	names := map[string][]string{} // by usage text
	byTopic := map[string][]*flag.Flag{}
	fs.VisitAll(func(f *flag.Flag) {
		if names[f.Usage] == nil {
			t := topic(f)
			byTopic[t] = append(byTopic[t], f)
		}
		names[f.Usage] = append(names[f.Usage], dashed(f.Name))
	})
	for _, t := range topics {
		if len(byTopic[t]) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if t != "" {
			fmt.Fprintf(w, "%s:\n", t)
		}
		tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
		for _, f := range byTopic[t] {
			fmt.Fprintf(tw, "  %s\n", flagLine(f, names[f.Usage]))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func flagLine(f *flag.Flag, names []string) string {
	value, text := flag.UnquoteUsage(f)
	if IsBool(f.Value) {
		value = ""
	}
	if !slices.Contains([]string{"", "0", "0s", "false"}, f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	return strings.TrimSpace(strings.Join(names, ", ")+" "+strings.ToUpper(value)) + "\t" + text
}

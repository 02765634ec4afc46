package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageTemplate is cobra's usage template, changed to list flags by topic.
const usageTemplate = `Usage:
  {{if .HasParent}}{{.UseLine}}{{else}}{{.CommandPath}} [command] [flags]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{range $group := .Groups}}

{{.Title}}{{range $.Commands}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if and .HasAvailableSubCommands (not .Groups)}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{range flagTopics .}}

{{.Title}}:
{{.Text}}{{end}}{{if not .HasParent}}

"{{.CommandPath}} COMMAND --help" shows the flags and examples of a command, "{{.CommandPath}} run --help" the flags of the
agent, "{{.CommandPath}} help differences" the differences from the kubelet.{{end}}
`

// addTemplateFuncs registers the functions of usageTemplate with cobra, once per process.
var addTemplateFuncs = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagTopics", flagTopics) })

// Topics of the flags of "agent run".
const (
	own        = "Pods, files and sockets"
	onNode     = "Container runtime, images and network"
	joined     = "Cluster and identity"
	limits     = "Limits, eviction and garbage collection"
	output     = "Logs and version"
	fieldFlags = "Fields of the configuration file that have a flag"
	unused     = "Flags of the kubelet that have no effect here"
)

var agentTopics = []struct {
	names *regexp.Regexp
	topic string
}{
	{regexp.MustCompile(`^(v|vmodule|version|log.*|help)$`), output},
	{regexp.MustCompile(`kubeconfig|^(cert-dir|cloud-provider|hostname-override|node-ip|node-labels|register-.*|secret.*|provider-id)$`), joined},
	{regexp.MustCompile(`^(network|pods-reach-node|preload-images|registry-hosts|pull-bandwidth|nri-socket|pulls-per-registry|pinned-images|.*runtime-endpoint|image-.*|runtime-cgroups)$`), onNode},
	{regexp.MustCompile(`evict|^(local-storage-.*|maximum-.*|minimum-.*|pod-log-budget|record-size|starts-in-flight|exec-probes-in-flight)$`), limits},
}

// agentTopic returns the topic of a flag of "agent run". It recognizes flags without effect, and
// flags that only set a field, by the usage texts of package kubeletconfig, and other flags by name.
func agentTopic(f *pflag.Flag) string {
	switch {
	case strings.HasSuffix(f.Usage, "has no effect"), strings.Contains(f.Usage, "of the kubelet has no effect"):
		return unused
	case strings.HasPrefix(f.Usage, "field "):
		return fieldFlags
	}
	for _, t := range agentTopics {
		if t.names.MatchString(f.Name) {
			return t.topic
		}
	}
	return own
}

// helpWidth is the width of the help in characters.
const helpWidth = 120

// flagTopic is a section of a command's help with flags.
type flagTopic struct{ Title, Text string }

// flagTopics returns the flags of a command by topic. It returns nil for the root command, whose flags
// are the flags of run.
func flagTopics(c *cobra.Command) (out []flagTopic) {
	switch {
	case !c.HasParent():
		return nil
	case c.Name() != "run":
		return []flagTopic{{"Flags", strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(helpWidth), "\n")}}
	}
	by := map[string]*pflag.FlagSet{}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		t := agentTopic(f)
		if by[t] == nil {
			by[t] = pflag.NewFlagSet(t, pflag.ContinueOnError)
		}
		by[t].AddFlag(f)
	})
	for _, t := range []string{own, onNode, joined, limits, output, fieldFlags, unused} {
		switch fs := by[t]; {
		case fs == nil:
		case t == unused:
			out = append(out, flagTopic{t, names(fs)})
		default:
			out = append(out, flagTopic{t, strings.TrimRight(fs.FlagUsagesWrapped(helpWidth), "\n")})
		}
	}
	return out
}

// names returns the names of the flags in fs, four per line.
func names(fs *pflag.FlagSet) string {
	var all []string
	fs.VisitAll(func(f *pflag.Flag) { all = append(all, dashed(f)) })
	var lines []string
	for some := range slices.Chunk(all, 4) {
		lines = append(lines, "      "+strings.Join(some, ", "))
	}
	return strings.Join(lines, "\n")
}

// flagError converts an error of a flag of c into one with the allowed values, or with similar flags.
func flagError(c *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		invalid *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
	)
	help := c.CommandPath() + " --help lists the flags"
	if !c.HasParent() {
		help = c.CommandPath() + " run --help lists the flags"
	}
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("%s=%q: want %s", dashed(invalid.GetFlag()), invalid.GetValue(), wanted(invalid.GetFlag(), invalid.GetValue(), invalid.Unwrap()))
	case errors.As(err, &missing):
		return fmt.Errorf("%s: want a value after it", dashed(missing.GetFlag()))
	case errors.As(err, &unknown):
		if shorthands := unknown.GetSpecifiedShortnames(); shorthands != "" {
			return fmt.Errorf("unknown flag -%s; %s", unknown.GetSpecifiedName(), help)
		}
		return fmt.Errorf("unknown flag --%s%s; %s", unknown.GetSpecifiedName(), guess(similarFlags(c, unknown.GetSpecifiedName())), help)
	}
	return fmt.Errorf("%w; %s", err, help)
}

// similarFlags returns the flags of c whose names are similar to name.
func similarFlags(c *cobra.Command, name string) (out []string) {
	names := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra finds only similar names of commands
	c.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	for _, s := range names.SuggestionsFor(name) {
		out = append(out, "--"+s)
	}
	return out
}

// guess returns "; did you mean ...?" with the similar words, or "" if there are none.
func guess(similar []string) string {
	if len(similar) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(similar, " or ") + "?"
}

// wanted describes the allowed values of a flag by the flag's type. For other types it returns the
// text of err.
func wanted(f *pflag.Flag, value string, err error) string {
	switch f.Value.Type() {
	case "bool", "boolFunc":
		return "true or false"
	case "int", "int64", "count":
		return "a whole number"
	case "duration":
		return "a duration such as 30s, 5m or 1h30m"
	}
	return strings.TrimPrefix(err.Error(), fmt.Sprintf("%q: want ", value))
}

// dashed returns the usual form of a flag: -v, but --root-dir.
func dashed(f *pflag.Flag) string {
	if len(f.Name) == 1 {
		return "-" + f.Name
	}
	return "--" + f.Name
}

// knownCommand returns an error if the command c has an argument, which can only be an unknown
// subcommand.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = min(2, len(args[0])/2) // maximum number of different letters
	return fmt.Errorf("unknown command %q%s; %s --help lists the commands", args[0], guess(c.SuggestionsFor(args[0])), c.CommandPath())
}

// noArguments returns an error if there are arguments.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, got %q", c.Name(), args[0])
	}
	return nil
}

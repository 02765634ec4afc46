package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
)

// configPath is the URL path of the configuration on an agent's socket.
const configPath = "/v1/config"

func newConfig(std stdio) *cobra.Command {
	var (
		c                  clientFlags
		file, dir, output  string
		changed, noHeaders bool
	)
	cmd := &cobra.Command{
		Use: "config", Short: "Print the configuration in effect, with the origin of each value",
		Long: `Print the configuration of the running agent: each field and flag with its value and its origin, which is a file and
line, a flag, or "default". With --config, print the configuration in that file instead. Passwords are masked.`,
		Example: "  agent config\n  agent config --changed\n  agent config --config /etc/nodewright/agent.yaml\n  agent config -o json",
		Args:    noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, output) {
				return fmt.Errorf("-o %q: want json or yaml", output)
			}
			values, err := c.config(cmd.Context(), file, dir)
			if err != nil {
				return err
			}
			if changed {
				values = slices.DeleteFunc(values, func(v kubeletconfig.Value) bool { return v.Origin == "default" })
			}
			return printConfig(std, values, output, noHeaders)
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&file, "config", "", "a KubeletConfiguration `file` to read instead of asking the agent")
	cmd.Flags().StringVar(&dir, "config-dir", "", "a `directory` of drop-ins (*.conf) merged over --config")
	cmd.Flags().BoolVar(&changed, "changed", false, "leave out values with the origin default")
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "print no column names")
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `format`: json or yaml")
	completeFlag(cmd, "output", oneOf("json", "yaml"))
	return cmd
}

// config returns the configuration of the files, or of the agent if file and dir are "".
func (c *clientFlags) config(ctx context.Context, file, dir string) (values []kubeletconfig.Value, err error) {
	if file == "" && dir == "" {
		err = c.client().Get(ctx, configPath, &values)
		if errors.Is(err, local.ErrNotFound) {
			return nil, errors.New("this agent does not report its configuration")
		}
		return values, err
	}
	flags := kubeletconfig.NewFlags()
	flags.ConfigFile, flags.ConfigDir = file, dir
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags, Used: moreFields})
	if err != nil {
		return nil, err
	}
	return conf.Values(), nil
}

func printConfig(std stdio, values []kubeletconfig.Value, output string, noHeaders bool) error {
	switch output {
	case "json":
		enc := json.NewEncoder(std.out)
		enc.SetIndent("", "  ")
		return enc.Encode(values)
	case "yaml":
		text, err := yaml.Marshal(values)
		if err != nil {
			return err
		}
		_, err = std.out.Write(text)
		return err
	}
	w := tabwriter.NewWriter(std.out, 0, 8, 3, ' ', 0)
	if !noHeaders {
		fmt.Fprintln(w, "FIELD\tVALUE\tORIGIN")
	}
	for _, v := range values {
		fmt.Fprintf(w, "%s\t%s\t%s\n", oneLine(v.Field), shownValue(v.Value), oneLine(v.Origin))
	}
	return w.Flush()
}

// shownValue formats a value for a column, as JSON. It leaves out the quotes of a string,
// unless the column would look empty.
func shownValue(v any) string {
	if s, ok := v.(string); ok && strings.TrimSpace(s) != "" {
		return oneLine(s)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return oneLine(fmt.Sprint(v))
	}
	return oneLine(string(b))
}

// tellConfig returns the service that serves the configuration on the agent's socket.
func tellConfig(conf *kubeletconfig.Config, flags *kubeletconfig.Flags) nodeagent.Service {
	return func(n *nodeagent.Node) (name string, run func(context.Context) error, err error) {
		values := append(flags.Values(), conf.Values()...)
		n.OnSocket("GET "+configPath, configHandler(values))
		return "configuration", nil, nil
	}
}

func configHandler(values []kubeletconfig.Value) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(values)
	})
}

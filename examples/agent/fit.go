package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podmgr"
)

// doesNotFit is the exit code of "agent fit" if the node would reject the pod.
const doesNotFit exitError = 1

func newFit(std stdio) *cobra.Command {
	var (
		c            clientFlags
		file, output string
	)
	cmd := &cobra.Command{
		Use: "fit -f FILE", Short: "Show whether a pod would fit on this node, on which CPUs and devices, or why not",
		Example:    "  agent fit -f pod.yaml\n  agent fit -f - < pod.yaml\n  agent fit -f pod.yaml -o json",
		SuggestFor: []string{"apply", "create"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("fit takes no argument, got %q; give a manifest with -f", args[0])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file == "":
				return errors.New("which pods? Give their manifest with -f")
			case output != "" && output != "json":
				return fmt.Errorf("-o %q: want json", output)
			}
			snap, err := readPods(std.in, file)
			if err != nil {
				return err
			}
			return c.fit(cmd.Context(), std.out, &snap, output == "json")
		},
	}
	c.register(cmd)
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", "", "the `namespace` of the pods, in place of the manifest's")
	cmd.Flags().StringVarP(&file, "filename", "f", "", "a manifest `file` with pods; - means standard input")
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `format`: json")
	completeFlag(cmd, "output", oneOf("json"))
	completeFlag(cmd, "namespace", c.from(c.namespaces))
	return cmd
}

// fit asks the agent for each pod of a manifest whether the pod would fit, together with the
// pods before it in the manifest. It prints the answers.
func (c *clientFlags) fit(ctx context.Context, out io.Writer, snap *podmgr.Snapshot, asJSON bool) error {
	pods := snap.Pods
	for _, pod := range pods {
		if c.namespace != "" {
			pod.Namespace = c.namespace
		}
	}
	answers, err := c.client().Fit(ctx, pods...)
	if err != nil {
		return err
	}
	fits := true
	for i := range answers {
		f := &answers[i]
		f.Missing = slices.DeleteFunc(f.Missing, func(m local.FitMissing) bool { return has(snap, m) })
		fits = fits && f.Fits
		if asJSON {
			enc := json.NewEncoder(out)
			enc.SetIndent("", "  ")
			err = enc.Encode(f)
		} else {
			if len(pods) > 1 {
				fmt.Fprintf(out, "%s%s/%s\n", strings.Repeat("\n", min(i, 1)), pods[i].Namespace, pods[i].Name)
			}
			err = writeFit(out, f)
		}
		if err != nil {
			return err
		}
	}
	if !fits {
		return doesNotFit
	}
	return nil
}

// readPods reads the pods in a YAML or JSON file, which may have several documents. It fails if
// the file has no pod or any mistake.
func readPods(in io.Reader, file string) (snap podmgr.Snapshot, err error) {
	b, err := readManifest(in, file)
	if err != nil {
		return snap, err
	}
	snap = podmgr.Decode(file, b)
	var wrong []error
	for _, p := range snap.Problems {
		wrong = append(wrong, errors.New(problemLine(local.Problem(p))))
	}
	if len(snap.Problems) == 0 && len(snap.Pods) == 0 {
		wrong = append(wrong, fmt.Errorf("%s: has no pod; want at least one", file))
	}
	return snap, errors.Join(wrong...)
}

// maxManifest is the maximum size of a manifest in bytes. It is close to the agent's limit for
// manifests.
const maxManifest = 3 << 20

// readManifest reads a file, or in if file is "-". The file may be a pipe, since the user of
// the command chooses it.
func readManifest(in io.Reader, file string) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("%s: has more than %d bytes; want less", file, maxManifest)
	}
	return b, err
}

// wouldRun reports whether a pod fits and the node has, or will get, everything that the pod needs.
func wouldRun(f *local.Fit) bool {
	return f.Fits && !slices.ContainsFunc(f.Missing, func(m local.FitMissing) bool { return !m.Comes })
}

// verdict returns one line that tells whether the pod would run, and if not all reasons.
func verdict(f *local.Fit) string {
	var is string
	var why []string
	switch {
	case !f.Fits && f.RetryUntil.IsZero():
		is = "does not fit: " + f.Reason
	case !f.Fits:
		is = "does not fit yet, and would wait until " + f.RetryUntil.Local().Format(time.TimeOnly) + ": " + f.Reason
	case wouldRun(f):
		is, why = "fits", []string{strings.Join(f.Requests, ", ")}
	default:
		is = "would wait"
	}
	if !f.Fits {
		why = f.Shortages
		if !strings.HasPrefix(f.Reason, "OutOf") || len(why) == 0 {
			why = append([]string{f.Message}, why...)
		}
	}
	for _, m := range f.Missing {
		why = append(why, m.Message)
	}
	if text := strings.Join(slices.DeleteFunc(why, func(s string) bool { return s == "" }), "; "); text != "" {
		is += ": " + text
	}
	return oneLine(is)
}

// writeFit prints the result of "agent fit": the verdict and, for a pod that fits, the CPUs, memory
// and devices that its containers would get, if the agent assigns any.
func writeFit(out io.Writer, f *local.Fit) error {
	fmt.Fprintln(out, verdict(f))
	if !f.Fits {
		for _, s := range f.Steps {
			fmt.Fprintln(out, oneLine(s))
		}
		return nil
	}
	if !slices.ContainsFunc(f.Containers, func(c local.FitContainer) bool {
		return c.CPUs+c.MemoryNodes+c.Hint.Nodes != "" || len(c.Memory)+len(c.Devices) > 0
	}) {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "CONTAINER\tCPUS\tMEMORY\tMEMORY NODES\tHINT"+devicesHeader(f))
	for _, c := range f.Containers {
		cpus := anyList(c.CPUs)
		if c.CPUs != "" && !c.Own {
			cpus += " (shared)"
		}
		hint := anyList(c.Hint.Nodes)
		if c.Hint.Preferred {
			hint += " (preferred)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s%s\n", c.Name, cpus, amounts(c.Memory), anyList(c.MemoryNodes), hint, deviceList(c.Devices))
	}
	return w.Flush()
}

func anyList(s string) string {
	if s == "" {
		return "any"
	}
	return s
}

// amounts formats the bytes of each resource, as "1Gi,hugepages-2Mi=64Mi". It leaves out the name of
// the resource memory.
func amounts(of map[string]uint64) string {
	out := ""
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(of))) { // memory is last in alphabetical order
		q := resource.NewQuantity(int64(of[name]), resource.BinarySI).String()
		if name != string(v1.ResourceMemory) {
			q = name + "=" + q
		}
		if out != "" {
			out += ","
		}
		out += q
	}
	if out == "" {
		return "-"
	}
	return out
}

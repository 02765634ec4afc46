package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/manifestguard"
)

// doesNotFit is how "agent fit" ends when the node would not take the pod.
const doesNotFit exitError = 1

func fitPod(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent fit", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	file := fs.String("f", "", "the pod's manifest, a `file`; - reads it from standard input")
	also(fs, "f", "filename")
	output := fs.String("o", "", "the `format`: json")
	also(fs, "o", "output")
	names, err := parseNames(fs, std, args)
	switch {
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("fit takes no argument, got %q; a manifest is given with -f", names[0])
	case *file == "":
		return errors.New("which pod? Give its manifest with -f")
	case *output != "" && *output != "json":
		return fmt.Errorf("-o %q: want json", *output)
	}
	pod, err := readPod(std.in, *file)
	if err != nil {
		return err
	}
	if c.namespace != "" {
		pod.Namespace = c.namespace
	}
	f, err := c.client().Fit(ctx, pod)
	if err != nil {
		return err
	}
	if *output == "json" {
		enc := json.NewEncoder(std.out)
		enc.SetIndent("", "  ")
		err = enc.Encode(f)
	} else {
		err = writeFit(std.out, f)
	}
	if err == nil && !f.Fits {
		return doesNotFit
	}
	return err
}

// readPod reads one pod from a file, YAML or JSON.
func readPod(in io.Reader, file string) (*v1.Pod, error) {
	b, err := readManifest(in, file)
	if err != nil {
		return nil, err
	}
	pod := new(v1.Pod)
	if err := decodable(b, pod); err != nil {
		return nil, fmt.Errorf("%s: %s", file, oneLine(err.Error()))
	}
	if err := yaml.UnmarshalStrict(b, pod); err != nil {
		return nil, fmt.Errorf("%s: %s", file, oneLine(err.Error()))
	}
	if pod.Kind != "Pod" || pod.APIVersion != "v1" {
		return nil, fmt.Errorf("%s: kind %q of apiVersion %q; want kind Pod of apiVersion v1", file, pod.Kind, pod.APIVersion)
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("%s: spec.containers is empty; want at least one", file)
	}
	return pod, nil
}

// Bounds of a manifest, about those of an agent's own.
const (
	maxManifest = 3 << 20  // bytes
	maxValues   = 250_000  // fields, items and lines
	maxPod      = 32 << 20 // bytes in memory
)

// readManifest reads a file, which may be a pipe: its user names it.
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
		err = fmt.Errorf("%s: has more than %d bytes; want one pod", file, maxManifest)
	}
	return b, err
}

// decodable refuses YAML or JSON that costs far more than its size says.
func decodable(text []byte, into *v1.Pod) error {
	if manifestguard.Values(text) > maxValues {
		return fmt.Errorf("has more values than are read; want at most %d fields, items and lines", maxValues)
	}
	if err := manifestguard.Aliases(text, maxPod); err != nil {
		return err
	}
	j, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return manifestguard.Decodable(j, into, maxPod)
}

// writeFit prints an answer for people.
func writeFit(out io.Writer, f *local.Fit) error {
	if !f.Fits {
		verdict := "does not fit"
		if !f.RetryUntil.IsZero() {
			verdict = "does not fit yet, and would wait until " + f.RetryUntil.Local().Format(time.TimeOnly)
		}
		fmt.Fprintf(out, "%s: %s: %s\n", verdict, f.Reason, oneLine(f.Message))
		for _, s := range f.Steps {
			fmt.Fprintln(out, oneLine(s))
		}
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

// amounts lists bytes by resource; memory goes without its name.
func amounts(of map[string]uint64) string {
	out := ""
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(of))) { // memory is the last
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

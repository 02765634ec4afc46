package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodewright/nodewright/agent/local"
)

func listImages(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent images", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	output := fs.String("o", "", "the `format`: json")
	also(fs, "o", "output")
	names, err := parseNames(fs, std, args)
	switch {
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("images takes no argument, got %q", names[0])
	case *output != "" && *output != "json":
		return fmt.Errorf("-o %q: want json", *output)
	}
	images, err := c.client().Images(ctx)
	if err != nil {
		return err
	}
	if *output == "json" {
		enc := json.NewEncoder(std.out)
		enc.SetIndent("", "  ")
		return enc.Encode(images)
	}
	return writeImages(std.out, images, time.Now())
}

// writeImages prints the images for people.
func writeImages(out io.Writer, images *local.Images, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tSIZE\tSEEN\tUSED\tSTATE")
	for i := range images.Images {
		img := &images.Images[i]
		used := "never"
		if !img.LastUsed.IsZero() {
			used = duration.HumanDuration(max(0, now.Sub(img.LastUsed))) + " ago"
		}
		state := img.Verdict
		if img.Why != "" {
			state += ": " + img.Why
		}
		if img.Goes {
			state += " (goes now)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s ago\t%s\t%s\n", oneLine(img.Name), humanBytes(img.Size),
			duration.HumanDuration(max(0, now.Sub(img.FirstSeen))), used, oneLine(state))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, oneLine(images.Summary))
	switch {
	case images.Problem != "":
		fmt.Fprintln(out, oneLine(images.Problem))
	case images.Wanted > 0:
		fmt.Fprintf(out, "%s are to be freed, so that the disk is used to %d%%\n", humanBytes(images.Wanted), images.Low)
	default:
		fmt.Fprintf(out, "the disk is used to %d%%; from %d%% on images are removed until it is %d%%\n", usedPercent(images.Disk), images.High, images.Low)
	}
	return nil
}

// usedPercent is rounded up, as when it is decided whether images go.
func usedPercent(d local.ImageDisk) int64 {
	if d.Capacity <= 0 {
		return 0
	}
	return 100 - int64(100*float64(d.Available)/float64(d.Capacity))
}

// humanBytes is a number of bytes for people.
func humanBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return fmt.Sprintf("%.1f%ciB", f, units[u])
}

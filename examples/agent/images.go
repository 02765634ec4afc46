package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodewright/nodewright/agent/local"
)

// imagesCommand lists the images, or brings or removes some.
func imagesCommand(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent images", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	output := fs.String("o", "", "the `format` of the list: json")
	also(fs, "o", "output")
	name := fs.String("name", "", "the `name` for load to give to an image without a name")
	force := fs.Bool("force", false, "let rm remove an image that a container uses")
	words, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	verb := ""
	if len(words) > 0 {
		verb, words = words[0], words[1:]
	}
	if *output != "" && (*output != "json" || verb != "") {
		return fmt.Errorf("-o %q: want json, and no verb", *output)
	}
	if *name != "" && verb != "load" {
		return fmt.Errorf("--name %q: want the verb load beside it", *name)
	}
	if *force && verb != "rm" {
		return errors.New("--force: want the verb rm beside it")
	}
	switch verb {
	case "":
		return listImages(ctx, std, c.client(), *output)
	case "load":
		return eachImage(words, "FILE", func(file string) error { return loadImage(ctx, std, c.client(), file, *name) })
	case "pull":
		return eachImage(words, "IMAGE", func(image string) error {
			id, err := c.client().PullImage(ctx, image)
			if err == nil {
				fmt.Fprintln(std.out, oneLine(id))
			}
			return err
		})
	case "rm":
		return eachImage(words, "IMAGE", func(image string) error { return c.client().RemoveImage(ctx, image, *force) })
	}
	return fmt.Errorf("images %q: want load, pull or rm, or nothing for a list", verb)
}

// eachImage calls do for all words, and reports what went wrong with any.
func eachImage(words []string, what string, do func(string) error) error {
	if len(words) == 0 {
		return fmt.Errorf("which? Give at least one %s", what)
	}
	var errs []error
	for _, w := range words {
		errs = append(errs, do(w))
	}
	return errors.Join(errs...)
}

// loadImage sends an archive, or what is written to the command for "-".
func loadImage(ctx context.Context, std stdio, cl *local.Client, file, name string) error {
	in := std.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	ids, err := cl.LoadImages(ctx, in, name)
	for _, id := range ids {
		fmt.Fprintln(std.out, oneLine(id))
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", file, err)
	}
	return nil
}

func listImages(ctx context.Context, std stdio, cl *local.Client, output string) error {
	images, err := cl.Images(ctx)
	if err != nil {
		return err
	}
	if output == "json" {
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

// usedPercent returns the usage in percent, rounded up as in the image collector.
func usedPercent(d local.ImageDisk) int64 {
	if d.Capacity <= 0 {
		return 0
	}
	return 100 - int64(100*float64(d.Available)/float64(d.Capacity))
}

// humanBytes formats a number of bytes.
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

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podmeta"
)

// newImages returns the command that lists the images, and its subcommands that load, pull and
// remove images.
func newImages(std stdio) *cobra.Command {
	var (
		c            clientFlags
		output, name string
		force, quiet bool
	)
	list := &cobra.Command{
		Use: "images", Short: "List images with the reason why each is kept or would be removed; load, pull and remove them",
		Example: "  agent images\n  agent images load busybox.tar\n  agent images pull registry.k8s.io/pause:3.10\n  agent images rm docker.io/library/old:1",
		Args:    knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("-o %q: want json", output)
			}
			return listImages(cmd.Context(), std, c.client(), output)
		},
	}
	list.Flags().StringVarP(&output, "output", "o", "", "the `format`: json")
	completeFlag(list, "output", oneOf("json"))
	load := &cobra.Command{
		Use: "load FILE...", Short: "Load the images of archives; - means standard input",
		Example: "  agent images load busybox.tar\n  agent images load --name docker.io/library/shop:1 shop.tar",
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachImage(args, "FILE", func(file string) error { return loadImage(cmd.Context(), std, c.client(), file, name, quiet) })
		},
	}
	load.Flags().StringVar(&name, "name", "", "the `name` for an image without a name")
	pull := &cobra.Command{
		Use: "pull IMAGE...", Short: "Pull images", ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  agent images pull registry.k8s.io/pause:3.10",
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachImage(args, "IMAGE", func(image string) error {
				if !quiet {
					fmt.Fprintf(std.err, "pulling %s\n", oneLine(image))
				}
				waiting := podsWithoutImage(cmd.Context(), c.client())
				id, err := c.client().PullImage(cmd.Context(), image)
				if err != nil {
					return err
				}
				return loaded(cmd.Context(), std, c.client(), "pulled", []string{id}, waiting, quiet)
			})
		},
	}
	for _, cmd := range []*cobra.Command{load, pull} {
		cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only the IDs of the images")
	}
	remove := &cobra.Command{
		Use: "rm IMAGE...", Short: "Remove images", ValidArgsFunction: c.from(c.images),
		Example: "  agent images rm docker.io/library/old:1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachImage(args, "IMAGE", func(image string) error {
				err := c.client().RemoveImage(cmd.Context(), image, force)
				if err == nil {
					fmt.Fprintln(std.out, "removed "+oneLine(image))
				}
				return err
			})
		},
	}
	remove.Flags().BoolVar(&force, "force", false, "remove an image that a container uses")
	list.AddCommand(newImagesVerify(std))
	for _, cmd := range []*cobra.Command{list, load, pull, remove} {
		c.register(cmd)
		if cmd != list {
			list.AddCommand(cmd)
		}
	}
	return list
}

// eachImage calls do for each word, and returns the errors of all calls. what is the kind of word, for
// the error if there is none.
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

// loadImage sends an image archive to the agent, or standard input if file is "-".
func loadImage(ctx context.Context, std stdio, cl *local.Client, file, name string, quiet bool) error {
	in, size := std.in, int64(0)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() {
			size = fi.Size()
		}
		in = f
	}
	bar := &progress{in: in, size: size, what: file}
	if isTerminal(std.err) && !quiet {
		bar.out = std.err
	}
	waiting := podsWithoutImage(ctx, cl)
	ids, err := cl.LoadImages(ctx, bar, name)
	bar.end()
	if err != nil {
		return fmt.Errorf("load %s: %w", file, err)
	}
	return loaded(ctx, std, cl, "loaded", ids, waiting, quiet)
}

// loaded prints the images that were loaded or pulled: names, sizes, IDs, and how many pods waited for
// them. If quiet is true, it prints only the IDs.
func loaded(ctx context.Context, std stdio, cl *local.Client, did string, ids []string, waiting map[string]int, quiet bool) error {
	if quiet {
		for _, id := range ids {
			fmt.Fprintln(std.out, oneLine(id))
		}
		return nil
	}
	list, err := cl.Images(ctx)
	if err != nil { // print the IDs without the names
		list = &local.Images{}
	}
	for _, id := range ids {
		text, pods := oneLine(id), 0
		for i := range list.Images {
			if img := &list.Images[i]; img.ID == id {
				text = fmt.Sprintf("%s (%s, %s)", oneLine(img.Name), humanBytes(img.Size), oneLine(id))
				pods = waiting[fullName(img.Name)]
			}
		}
		if pods > 0 {
			text += "; " + counted(pods, "pod") + " waited for it"
		}
		fmt.Fprintln(std.out, did+" "+text)
	}
	return nil
}

// podsWithoutImage returns the number of pods that wait for an image, by the image's full name.
func podsWithoutImage(ctx context.Context, cl *local.Client) map[string]int {
	out := map[string]int{}
	list, err := cl.Pods(ctx)
	if err != nil {
		return out
	}
	for i := range list.Items {
		for _, name := range podmeta.MissingImages(&list.Items[i]) {
			out[fullName(name)]++
		}
	}
	return out
}

// fullName returns the name of an image with its registry and tag.
func fullName(image string) string {
	ref, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return ref.String()
}

// progress is a reader of an archive that draws a progress bar. It draws nothing if out is nil.
type progress struct {
	in   io.Reader
	out  io.Writer
	what string
	size int64     // size of the archive; 0 if not known
	read int64     // bytes read so far
	at   time.Time // time of the last drawing
}

// progressInterval is the shortest time between two drawings.
const progressInterval = 100 * time.Millisecond

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	p.read += int64(n)
	if now := time.Now(); p.out != nil && now.Sub(p.at) >= progressInterval {
		p.at = now
		p.draw()
	}
	return n, err
}

// progressWidth is the number of cells of a bar.
const progressWidth = 30

func (p *progress) draw() {
	if p.size <= 0 {
		fmt.Fprintf(p.out, "\r%s: %s\x1b[K", oneLine(p.what), humanBytes(p.read))
		return
	}
	done := int(min(p.read, p.size) * progressWidth / p.size)
	fmt.Fprintf(p.out, "\r%s [%s%s] %s of %s\x1b[K", oneLine(p.what), strings.Repeat("=", done), strings.Repeat(" ", progressWidth-done), humanBytes(p.read), humanBytes(p.size))
}

// end removes the bar from the terminal.
func (p *progress) end() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func listImages(ctx context.Context, std stdio, cl *local.Client, output string) error {
	list, err := cl.Images(ctx)
	if err != nil {
		return err
	}
	return printImages(std.out, list, output == "json")
}

func printImages(out io.Writer, list *local.Images, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(list)
	}
	return writeImages(out, list, time.Now())
}

// writeImages prints a table of the images, and a summary.
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
			state += " (would be removed now)"
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
		fmt.Fprintf(out, "%s have to be freed, so that disk usage falls to %d%%\n", humanBytes(images.Wanted), images.Low)
	default:
		fmt.Fprintf(out, "disk usage is %d%%; at %d%% or more, images are removed until it is %d%%\n", usedPercent(images.Disk), images.High, images.Low)
	}
	return nil
}

// usedPercent returns the disk usage in percent, rounded up like in the image garbage collector.
func usedPercent(d local.ImageDisk) int64 {
	if d.Capacity <= 0 {
		return 0
	}
	return 100 - int64(100*float64(d.Available)/float64(d.Capacity))
}

// humanBytes formats a number of bytes with a binary unit, such as 1.5MiB.
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

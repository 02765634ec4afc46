package gc

import (
	"fmt"
	"strings"
	"time"
)

// The report of a pass: a line for logs and events, and the list of images for tools.

// ImageReport describes what a pass found and did.
type ImageReport struct {
	// At is the start of the pass; zero if there was none.
	At time.Time
	// Disk is the usage at the start of the pass; zero if the pass did not read it.
	Disk ImageDisk
	// Wanted is the number of bytes to free. Freed is the increase of available bytes.
	Wanted, Freed int64
	// Images has all images, in the order of decideImages.
	Images []ImageOutcome
}

// ImageOutcome is the result of a pass for one image.
type ImageOutcome struct {
	JudgedImage
	Removed bool
	Err     error // why the image could not be removed
}

// Summary returns the report in one line: the disk usage, and the number of images for each
// reason to keep them. An image that could not be removed counts as a failure and as kept.
func (r *ImageReport) Summary() string {
	var n [numVerdicts]int
	var bytes [numVerdicts]int64
	removed, failed := 0, 0
	for i := range r.Images {
		o := &r.Images[i]
		switch {
		case o.Removed:
			removed++
			continue
		case o.Err != nil:
			failed++
		}
		n[o.Verdict]++
		bytes[o.Verdict] += o.Image.Size
	}
	var b strings.Builder
	if r.Disk.Capacity > 0 {
		fmt.Fprintf(&b, "%s of %s were available", size(r.Disk.Available), size(r.Disk.Capacity))
		if r.Disk.Images > 0 {
			fmt.Fprintf(&b, ", images took %s", size(r.Disk.Images))
		}
		b.WriteString("; ")
	}
	fmt.Fprintf(&b, "%d images", len(r.Images))
	if removed > 0 {
		fmt.Fprintf(&b, ", %d removed", removed)
	}
	if failed > 0 {
		fmt.Fprintf(&b, ", %d could not be removed", failed)
	}
	for v := range numVerdicts {
		if n[v] > 0 {
			fmt.Fprintf(&b, ", %d %v (%s)", n[v], v, size(bytes[v]))
		}
	}
	return b.String()
}

// size formats a number of bytes, in units of 1024.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[u])
}

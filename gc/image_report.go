package gc

import (
	"fmt"
	"strings"
	"time"
)

// The account that each pass gives: for logs and events in one line, and for tools image by
// image.

// ImageReport describes what a pass found and did.
type ImageReport struct {
	// At is when the pass began; zero if there was none.
	At time.Time
	// ImageDisk is what it was at the start of the pass; zero if the pass did not
	// come to look at it.
	Disk ImageDisk
	// Wanted is how many bytes were to be freed, Freed how many more were
	// available in the end.
	Wanted, Freed int64
	// Images are all that were there, in the order of Decide.
	Images []ImageOutcome
}

// ImageOutcome is what became of an image.
type ImageOutcome struct {
	JudgedImage
	Removed bool
	Err     error // why it could not be removed
}

// Summary is the report in a line: how full the disk is, and why images stay. An image that
// could not be removed counts among the failures and among those that stay.
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

// size is a number of bytes for people, in units of 1024.
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

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// compressed is a tar.gz without times, owners and names of machines.
func compressed(files []sampleimage.File) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := sampleimage.Tar(z, files); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// A member is one file of an ar archive.
type member struct {
	name string
	data []byte
}

// ar is an archive as deb(5) has it: the common format of ar(5), names of at most 15
// bytes, numbers in decimal, each member at an even offset.
func ar(members []member) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range members {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, 0, 0, 0, 0o100644, len(m.data))
		b.Write(m.data)
		if len(m.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

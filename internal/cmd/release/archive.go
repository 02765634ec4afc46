package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// tarball returns a tar.gz of files. All entries have the modification time modified and
// no owner.
func tarball(files []sampleimage.File, modified time.Time) ([]byte, error) {
	var b bytes.Buffer
	if err := sampleimage.Tar(&b, files, modified); err != nil {
		return nil, err
	}
	return compressed(b.Bytes())
}

// level is the compression level; tests set a faster one.
var level = gzip.BestCompression

func compressed(content []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(content)
	err = errors.Join(err, z.Close()) // writes the rest
	return b.Bytes(), err
}

// A member is one file of an ar archive.
type member struct {
	name string
	data []byte
}

// ar returns an archive in the format of deb(5): the common format of ar(5), names
// of at most 15 bytes, numbers in decimal, each member at an even offset.
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

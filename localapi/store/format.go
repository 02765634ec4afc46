package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/internal/manifestguard"
)

// Limits of one file. Anyone who may run pods may have written it. They are the limits of a
// manifest.
const (
	// maxFile is the largest file, in bytes. The YAML of an object of 3 MiB of JSON, the API's
	// limit, is smaller, unless the object consists only of nesting.
	maxFile = 10 << 20
	// maxDocumentValues and maxDepth limit the memory and the stack for decoding.
	maxDocumentValues = 250_000
	maxDocumentDepth  = 100
	// maxGrowth limits the size of a file after its aliases are replaced, as a multiple of its
	// text; a small file may have 1 MiB.
	maxGrowth = 10
	smallFile = 1 << 20
)

// notesMark is the start of the line with the notes, which is the last line. For YAML it is a
// comment.
const notesMark = "# kept for clients of the API: "

// render returns the file of a document.
func render(d *Document) ([]byte, error) {
	text, err := yaml.JSONToYAML(d.Object)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by %s at %s. You may edit this file; changes take effect when it is saved.\n", oneLine(d.By), d.At.UTC().Format(time.RFC3339))
	b.Write(text)
	if len(d.Notes) > 0 {
		b.WriteString(notesMark)
		b.WriteString(oneLine(string(d.Notes)))
		b.WriteByte('\n')
	}
	if b.Len() > maxFile {
		return nil, fmt.Errorf("%w: its file would have %d bytes; want at most %d", ErrTooLarge, b.Len(), maxFile)
	}
	return b.Bytes(), nil
}

// oneLine removes line breaks, so that a text cannot end the comment that it is in.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029' || r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
}

// parseDocument parses a file.
func parseDocument(name string, text []byte) Document {
	d := Document{Name: name, Revision: revision(text)}
	d.Object, d.Err = storedObject(text)
	if i := bytes.LastIndex(text, []byte("\n"+notesMark)); i >= 0 {
		line, _, _ := bytes.Cut(text[i+1+len(notesMark):], []byte("\n"))
		// The notes are not verified: a person who edits the file may change or remove them.
		d.Notes = bytes.Clone(line)
	}
	return d
}

// storedObject returns the JSON of the one object in a file.
func storedObject(text []byte) ([]byte, error) {
	if manifestguard.Values(text) > maxDocumentValues {
		return nil, fmt.Errorf("file has too many values; want at most %d fields, items and lines", maxDocumentValues)
	}
	if err := manifestguard.Aliases(text, max(maxGrowth*len(text), smallFile)); err != nil {
		return nil, err
	}
	if n := documents(text); n > 1 {
		return nil, fmt.Errorf("file has %d documents; want one (a manifest with several belongs in the directory above)", n)
	}
	raw, twice, err := manifestguard.JSON(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if twice != nil {
		return nil, fmt.Errorf("%.100s is set twice", twice[0])
	}
	if depth := manifestguard.ShapeOf(raw).Depth; depth > maxDocumentDepth {
		return nil, fmt.Errorf("file is nested %d levels deep; want at most %d", depth, maxDocumentDepth)
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' || !json.Valid(raw) {
		return nil, errors.New("file has no object; want one with apiVersion, kind and metadata")
	}
	return raw, nil
}

// documents returns the number of YAML documents with content.
func documents(text []byte) (n int) {
	inside := false
	for line := range bytes.Lines(text) {
		trimmed := bytes.TrimSpace(line)
		switch {
		case bytes.Equal(bytes.TrimRight(line, " \t\r\n"), []byte("---")):
			inside = false
		case len(trimmed) > 0 && trimmed[0] != '#' && !inside:
			inside = true
			n++
		}
	}
	return n
}

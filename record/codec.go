package record

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"strconv"
)

// A file has the line of header, and then a line for each entry:
//
//	LENGTH CHECKSUM KEY STATE JSON
//
// LENGTH is the number of bytes of the rest of the line, from KEY on and without the line feed,
// and CHECKSUM is their CRC-32C, both as eight hexadecimal digits. KEY (16 digits) identifies the
// object whose state the entry has, and STATE (8 digits) is a checksum of that state. Both are 0
// for an event.

// version is the version of the format of files. Fields and kinds are added without a new version.
const version = 1

var header = fmt.Sprintf("nodewright record %d\n", version)

// Limits for entries that a reader accepts. A small text can have many values, which take much
// more memory than the text.
const (
	maxEntry  = 64 << 10 // bytes of an entry
	maxDepth  = 8        // of its JSON
	maxValues = 8 << 10  // in its JSON
)

// prefix is the number of bytes of a line before its JSON. The first frame bytes are not included
// in LENGTH.
const (
	frame  = 8 + 1 + 8 + 1
	prefix = frame + 16 + 1 + 8 + 1
)

// ErrDamaged is the error of a file that is cut off or damaged, or that is not a record.
var ErrDamaged = errors.New("damaged record")

// ErrVersion is the error of a file of a later version.
var ErrVersion = errors.New("record of another version")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// line is an encoded entry.
type line struct {
	key   uint64
	state uint32
	idle  bool   // result of Fact.idle, for an entry in the queue
	text  []byte // the line with its line feed
}

// stored is an entry in JSON.
type stored struct {
	Entry
	Kind string          `json:"kind"`
	Fact json.RawMessage `json:"fact,omitempty"`
}

// encode returns v in JSON. If v has a time that JSON cannot represent, it returns "null".
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}

// keyOf returns the key of the object whose state the entry has, and a checksum of the state. Both
// are 0 for an event.
func keyOf(e *Entry, fact []byte) (key uint64, state uint32) {
	k := e.Fact.key()
	if k == "" {
		return 0, 0
	}
	h := fnv.New64a()
	for _, s := range []string{string(e.Pod.UID), strconv.FormatUint(uint64(e.Pod.Life), 10), e.Container, k} {
		_, _ = io.WriteString(h, s)
		_, _ = h.Write([]byte{0})
	}
	return max(h.Sum64(), 1), crc32.Checksum(fact, castagnoli)
}

// encodeEntry encodes an entry as a line. fact is its Fact in JSON.
func encodeEntry(e *Entry, fact []byte, key uint64, state uint32) line {
	body := encode(stored{Entry: *e, Kind: e.Fact.kind(), Fact: fact})
	text := make([]byte, 0, prefix+len(body)+1)
	text = fmt.Appendf(text, "%08x %08x %016x %08x ", 0, 0, key, state)
	text = append(text, body...)
	head := fmt.Appendf(nil, "%08x %08x ", len(text)-frame, crc32.Checksum(text[frame:], castagnoli))
	copy(text, head)
	return line{key: key, state: state, text: append(text, '\n')}
}

// scanner reads the lines of a file. It reads no more than one line ahead.
type scanner struct {
	r    *bufio.Reader
	at   int64 // offset after the last valid line
	line line
}

// newScanner returns a scanner of a file of the record, after reading the file's header.
func newScanner(r io.Reader) (*scanner, error) {
	s := &scanner{r: bufio.NewReaderSize(r, 64<<10)}
	got := make([]byte, len(header))
	n, err := io.ReadFull(s.r, got)
	switch {
	case err == nil && string(got) == header:
		s.at = int64(n)
		return s, nil
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	case bytes.HasPrefix(got[:n], []byte("nodewright record ")):
		if n == len(header) {
			return nil, fmt.Errorf("%w: want version %d", ErrVersion, version)
		}
	}
	return nil, fmt.Errorf("%w: it does not begin with %q", ErrDamaged, header)
}

// next reads a line. It returns io.EOF at the end, and an ErrDamaged with the offset at a line that
// is cut off or damaged.
func (s *scanner) next() error {
	damaged := func(why string) error { return fmt.Errorf("%w: at byte %d: %s", ErrDamaged, s.at, why) }
	head, err := s.r.Peek(prefix)
	switch {
	case err != nil && len(head) == 0 && errors.Is(err, io.EOF):
		return io.EOF
	case err != nil && errors.Is(err, io.EOF):
		return damaged("it is cut off")
	case err != nil:
		return err
	}
	length, ok1 := hexNumber(head[:8])
	sum, ok2 := hexNumber(head[9:17])
	key, ok3 := hexNumber(head[18:34])
	state, ok4 := hexNumber(head[35:43])
	if !ok1 || !ok2 || !ok3 || !ok4 || head[8] != ' ' || head[17] != ' ' || head[34] != ' ' || head[43] != ' ' {
		return damaged("no entry begins here")
	}
	if length < prefix-frame || length > maxEntry {
		return damaged(fmt.Sprintf("an entry of %d bytes; at most %d are allowed", length, maxEntry))
	}
	text := make([]byte, frame+int(length)+1)
	if _, err := io.ReadFull(s.r, text); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return damaged("it is cut off")
		}
		return err
	}
	if text[len(text)-1] != '\n' || uint64(crc32.Checksum(text[frame:len(text)-1], castagnoli)) != sum {
		return damaged("wrong checksum")
	}
	s.at += int64(len(text))
	s.line = line{key: key, state: uint32(state), text: text}
	return nil
}

// hexNumber parses at most 16 hexadecimal digits in lower case.
func hexNumber(digits []byte) (n uint64, ok bool) {
	var b [8]byte
	if bytes.ContainsAny(digits, "ABCDEF") {
		return 0, false
	}
	k, err := hex.Decode(b[:], digits)
	if err != nil {
		return 0, false
	}
	for _, x := range b[:k] {
		n = n<<8 | uint64(x)
	}
	return n, true
}

// entry decodes the line. The result known is false for an entry of a kind that this build does not
// know.
func (l line) entry() (e Entry, known bool, err error) {
	body := l.text[prefix : len(l.text)-1]
	switch deepest, values := shape(body); {
	case deepest > maxDepth:
		return e, false, fmt.Errorf("%w: JSON that is nested more than %d deep", ErrDamaged, maxDepth)
	case values > maxValues:
		return e, false, fmt.Errorf("%w: JSON of more than %d values", ErrDamaged, maxValues)
	}
	var s stored
	if err := json.Unmarshal(body, &s); err != nil {
		return e, false, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	empty, known := kinds[s.Kind]
	if !known {
		return s.Entry, false, nil
	}
	s.Entry.Fact = empty()
	if len(s.Fact) > 0 {
		if err := json.Unmarshal(s.Fact, s.Entry.Fact); err != nil {
			return e, false, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return s.Entry, true, nil
}

// readable reports whether a reader accepts the line, if it is not damaged. The depth depends only on
// the types of the facts.
func (l line) readable() bool {
	if len(l.text) <= maxValues {
		return true
	}
	_, values := shape(l.text[prefix:])
	return len(l.text) <= maxEntry && values <= maxValues
}

// shape returns how deep a JSON text is nested, and an upper limit of its number of values.
func shape(text []byte) (deepest, values int) {
	n, quoted := 0, false
	values = 1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			n++
			values++
			deepest = max(deepest, n)
		case c == ',':
			values++
		case c == '}' || c == ']':
			n--
		}
	}
	return deepest, values
}

package network

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// record is written to the disk before the first call of a plugin: it has
// everything that TearDown needs.
type record struct {
	Plugin     string     `json:"plugin"`
	Attachment Attachment `json:"attachment"`
	Saved      []byte     `json:"saved,omitempty"`
	Netns      string     `json:"netns"`
	Boot       string     `json:"boot"`
	Created    time.Time  `json:"created"`
	// Token distinguishes several attachments with the same ID, one after the other: a
	// progress file with another token is ignored.
	Token string `json:"token"`
}

// progress is the state of an attachment. It is valid for one boot: after a reboot all
// attachments are torn down.
type progress struct {
	Token     string  `json:"token"`
	Detaching bool    `json:"detaching,omitempty"`
	Space     uint64  `json:"space,omitempty"` // the namespace's identity
	Result    *Result `json:"result,omitempty"`
}

// maxFile limits a record or a progress, in bytes: JSON encodes strings with up to six times their
// size, and bytes with a third more.
const maxFile = 4 << 20

// fileMagic begins the first line of a file. The line ends with the SHA-256 of the rest, which is
// JSON.
const fileMagic = "nodewright network 1 "

const headerSize = len(fileMagic) + 2*sha256.Size + 1

var errDamaged = errors.New("file is damaged")

func encodeFile(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body)+headerSize > maxFile {
		return nil, fmt.Errorf("record has %d bytes; want at most %d", len(body)+headerSize, maxFile)
	}
	sum := sha256.Sum256(body)
	out := make([]byte, 0, headerSize+len(body))
	out = append(out, fileMagic...)
	out = hex.AppendEncode(out, sum[:])
	out = append(out, '\n')
	return append(out, body...), nil
}

func decodeFile(file []byte, v any) error {
	if len(file) < headerSize || !bytes.HasPrefix(file, []byte(fileMagic)) || file[headerSize-1] != '\n' {
		return fmt.Errorf("%w: header is missing or invalid; file has %d bytes", errDamaged, len(file))
	}
	body := file[headerSize:]
	sum := sha256.Sum256(body)
	if string(file[len(fileMagic):headerSize-1]) != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("%w: wrong checksum", errDamaged)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}

// decodeRecord decodes the record in the file with that name, without the suffix.
func decodeRecord(name string, file []byte) (*record, error) {
	var r record
	if err := decodeFile(file, &r); err != nil {
		return nil, err
	}
	if err := check(&r.Attachment); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	switch {
	case fileName(r.Attachment.ID) != name:
		return nil, fmt.Errorf("%w: record is for attachment %s, which has another file name", errDamaged, r.Attachment.ID)
	case r.Plugin == "" || r.Boot == "" || r.Token == "":
		return nil, fmt.Errorf("%w: plugin %.80q, boot %.80q, token %.80q; want none to be empty", errDamaged, r.Plugin, r.Boot, r.Token)
	case !filepath.IsAbs(r.Netns) || filepath.Clean(r.Netns) != r.Netns:
		return nil, fmt.Errorf("%w: namespace at %.200q; want an absolute path", errDamaged, r.Netns)
	case len(r.Saved) > maxSaved:
		return nil, fmt.Errorf("%w: plan of %d bytes; want at most %d", errDamaged, len(r.Saved), maxSaved)
	}
	return &r, nil
}

// decodeProgress reads the progress of a record's attachment. It returns nil if the file belongs
// to another record or is invalid.
func decodeProgress(r *record, file []byte) *progress {
	var p progress
	if decodeFile(file, &p) != nil || p.Token != r.Token {
		return nil
	}
	if p.Result != nil {
		result, err := checkResult(r.Plugin, *p.Result, r.Netns)
		if err != nil {
			return nil
		}
		p.Result = &result
	}
	if p.Result == nil && !p.Detaching {
		return nil
	}
	return &p
}

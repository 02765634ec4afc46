package httpbound

import (
	"errors"
	"io"
	"net/http"
)

// ErrNoRoom means that the bodies that are being read at this time have too many bytes in all.
var ErrNoRoom = errors.New("too many bytes of request bodies at a time")

// Body reads the whole body of a request. Before it allocates memory for a part of the body, it
// calls take with the part's size. The sum of these sizes is at most limit+1. The error is ErrNoRoom
// if take returned false, a *http.MaxBytesError if the body has more than limit bytes, and
// os.ErrDeadlineExceeded if the connection's deadline has passed.
func Body(w http.ResponseWriter, r *http.Request, limit int, take func(bytes int) bool) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > int64(limit) {
		return nil, &http.MaxBytesError{Limit: int64(limit)}
	}
	from := http.MaxBytesReader(w, r.Body, int64(limit))
	var data []byte
	for {
		if len(data) == cap(data) {
			more := min(max(4<<10, cap(data)), limit+1-cap(data))
			if !take(more) {
				return nil, ErrNoRoom
			}
			data = append(make([]byte, 0, cap(data)+more), data...)
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

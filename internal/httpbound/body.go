package httpbound

import (
	"errors"
	"io"
	"net/http"
)

// ErrNoRoom means that the bodies that are being read have too many bytes together.
var ErrNoRoom = errors.New("too many bytes of request bodies at a time")

// Body reads the whole body of a request. It calls take with the size of each part before it reads
// the part. The sum of these sizes is at most one more than the size of the body. The error is
// ErrNoRoom if take returned false, a *http.MaxBytesError if the body has more than limit bytes,
// and os.ErrDeadlineExceeded if the connection's deadline has passed.
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

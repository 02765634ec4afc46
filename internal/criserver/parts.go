package criserver

import "google.golang.org/protobuf/proto"

// partSize limits the bytes of one message of a streamed list. A single item may be larger.
const partSize = 1 << 20

// inParts sends the items in several messages of at most partSize bytes, and returns the first
// error of send. If err is not nil, it sends nothing and returns err.
func inParts[T proto.Message](items []T, err error, send func([]T) error) error {
	if err != nil {
		return err
	}
	begin, size := 0, 0
	for i, item := range items {
		n := proto.Size(item)
		if i > begin && size+n > partSize {
			if err := send(items[begin:i]); err != nil {
				return err
			}
			begin, size = i, 0
		}
		size += n
	}
	if begin < len(items) {
		return send(items[begin:])
	}
	return nil
}

package engine

// Row is one *sql.Row or the present one of *sql.Rows.
type Row interface{ Scan(dest ...any) error }

// Rowset is *sql.Rows.
type Rowset interface {
	Row
	Next() bool
	Err() error
	Close() error
}

// Collect scans all rows and closes them.
func Collect[T any](rows Rowset, err error, scan func(Row) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports what matters
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// PageBytes bounds what a page takes in memory: it ends early after the row
// that reaches it.
const PageBytes = 2 << 20

// CollectPage is Collect up to PageBytes; short reports that it stopped there.
func CollectPage[T any](rows Rowset, err error, scan func(Row) (T, error), size func(T) int64) (page []T, short bool, _ error) {
	if err != nil {
		return nil, false, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports what matters
	for left := int64(PageBytes); rows.Next(); {
		if left <= 0 {
			return page, true, nil
		}
		v, err := scan(rows)
		if err != nil {
			return nil, false, err
		}
		page, left = append(page, v), left-size(v)
	}
	return page, false, rows.Err()
}

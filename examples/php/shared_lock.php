<?php
/*
 * Shares a lock with runguard: while this script works, `runguard run shop.import` is skipped, and the other way round.
 *
 *   php shared_lock.php file PATH < orders.csv     PATH is what `runguard key shop.import` prints after "file:"
 *   php shared_lock.php mariadb NAME < orders.csv  NAME is shop.import itself; SHOP_DSN, SHOP_USER, SHOP_PASSWORD say where
 *
 * Exits 75 when somebody else has the lock and 69 when the lock cannot be asked for, as runguard does.
 */

declare(strict_types=1);

const CONFLICT = 75;
const USAGE = 64;
const BROKEN = 69;

/** Stands for the work: counts the lines of standard input. */
function import_orders(): void
{
    echo "working\n";
    $orders = 0;
    while (fgets(STDIN) !== false) {
        $orders++;
    }
    echo "imported $orders orders\n";
}

/** Returns the open lock file, or null when it is busy. The lock lasts as long as the file is open. */
function lock_file(string $path)
{
    umask(0077);
    // c: do not truncate, the content is runguard's. e: programs started from here do not inherit the lock.
    $file = @fopen($path, 'ce');
    if ($file === false) {
        fwrite(STDERR, "cannot open the lock file $path: " . (error_get_last()['message'] ?? '') . "\n");
        exit(BROKEN);
    }
    if (flock($file, LOCK_EX | LOCK_NB, $busy)) {
        return $file;
    }
    if (!$busy) {
        fwrite(STDERR, "cannot lock $path\n");
        exit(BROKEN);
    }
    return null;
}

/** Returns the connection that has the lock, or null when it is busy. Never a persistent one: the lock is its session's. */
function lock_mariadb(string $name): ?PDO
{
    try {
        $server = new PDO((string) getenv('SHOP_DSN'), (string) getenv('SHOP_USER'), (string) getenv('SHOP_PASSWORD'));
        $server->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
        // A session that is quiet for longer than wait_timeout is ended, and the lock with it.
        $server->exec('SET SESSION wait_timeout = 31536000');
        $asked = $server->prepare('SELECT GET_LOCK(?, 0)');
        $asked->execute([$name]);
        $answer = $asked->fetchColumn();
    } catch (PDOException $error) {
        fwrite(STDERR, 'cannot ask for the lock: ' . $error->getMessage() . "\n");
        exit(BROKEN);
    }
    if ($answer === null) {
        fwrite(STDERR, "GET_LOCK gave no answer\n");
        exit(BROKEN);
    }
    return (int) $answer === 1 ? $server : null;
}

if ($argc !== 3 || !in_array($argv[1], ['file', 'mariadb'], true)) {
    fwrite(STDERR, "usage: php shared_lock.php file PATH | mariadb NAME\n");
    exit(USAGE);
}
$lock = $argv[1] === 'file' ? lock_file($argv[2]) : lock_mariadb($argv[2]);
if ($lock === null) {
    exit(CONFLICT);
}
import_orders();
// Never unlink the file: the next one would lock another. Leaving the script closes file or session, and frees the lock.
exit(0);

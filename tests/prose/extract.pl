#!/usr/bin/env perl
# usage: extract.pl FOLDER FILE...
#
# Writes what vale does not find by itself into FOLDER/FILE.md, each text on the line where FILE has it: string literals
# of three words or more from Rust (error messages, descriptions), and from other files the comments behind `#`.

use strict;
use warnings;
use File::Basename qw(dirname);
use File::Path qw(make_path);

# Strings of tests are for programmers.
my $tests = qr{(?:^|/)tests?(?:/(?!prose/)|\.rs$)|_tests?\.rs$};

my $folder = shift;
for my $file (@ARGV) {
    open my $in, '<', $file or die "$file: $!\n";
    my $text = do { local $/; <$in> };
    my $found = $file !~ /\.rs$/ ? comments($text) : $file =~ $tests ? '' : strings($text);
    make_path(dirname("$folder/$file"));
    open my $out, '>', "$folder/$file.md" or die "$folder/$file.md: $!\n";
    print $out $found;
    close $out or die "$folder/$file.md: $!\n";
}

# Each string is a sentence. Left out are unit tests, and expect("..."), which no operator reads.
sub strings {
    my ($text, $found) = (shift, '');
    $text =~ s/^#\[cfg\(test\)\]\nmod \w+ \{.*//ms;
    my $character = qr/b?'(?:[^'\\\n]|\\[^\n][^'\n]*)'/;
    while ($text =~ m{\G(?: //[^\n]* | /\*.*?\*/ | $character | \.expect\("(?:[^"\\]|\\.)*"\) | b?r(?<mark>\#*)"(?<raw>.*?)"\k<mark> | "(?<string>(?:[^"\\]|\\.)*)" | [^"'/br.]+ | . )}xgs) {
        my ($piece, $string) = ($&, $+{raw} // $+{string} // '');
        if ($string =~ /[A-Za-z]{2,},?\s+[A-Za-z]{2,},?\s+[A-Za-z]{2,}/) {
            $string =~ s/\\n/ /g;
            $string =~ s/\\\n/\n/g;
            $string =~ s/[\\|*_#<>\[\]]/ /g; # Nothing of Markdown but code.
            $string =~ s/^[ \t]+//mg;
            $found .= " $string. ";
        } else {
            $found .= "\n" x ($piece =~ tr/\n//);
        }
    }
    return $found;
}

# A setting behind `#:` is none (examples/router.toml); a line `#!` neither.
sub comments {
    return join '', map { /^#!/ || !/(?:^#: .*?|^|\s)#+ (.*)/ ? "\n" : "$1\n" } split /^/, shift;
}
